"""`ModelConfig`, through which `auto_complete_config` describes a model, and look-ups in configurations (§A4, §A5)."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

_INPUT_KEYS = ("name", "data_type", "dims", "optional")
_OUTPUT_KEYS = ("name", "data_type", "dims")


def _enumerate(keys: tuple) -> str:
    names = [f"'{key}'" for key in keys]
    return f"{', '.join(names[:-1])} and {names[-1]}"


class ModelConfig:
    """A model configuration to complete. All faults are ValueErrors."""

    def __init__(self, model_config: str) -> None:
        """`model_config`: JSON text."""
        self._model_config: Dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> Dict[str, Any]:
        """The configuration itself, not a copy."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Raises the largest batch size; one that the configuration gives cannot be lowered."""
        given = self._model_config["max_batch_size"]
        if given > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {given}, but in auto-complete-config function for model "
                f"'{self._name()}' specified max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Chooses the dynamic batcher, unless the configuration has chosen another scheduler."""
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{scheduler}', but auto-complete-config function "
                    f"for model '{self._name()}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: Dict[str, Any]) -> None:
        """Adds an input, or completes the one of that name."""
        self._add("input", _INPUT_KEYS, input)

    def add_output(self, output: Dict[str, Any]) -> None:
        """Adds an output, or completes the one of that name."""
        self._add("output", _OUTPUT_KEYS, output)

    def set_model_transaction_policy(self, transaction_policy_dict: Dict[str, Any]) -> None:
        """Says whether the model is decoupled."""
        for key in transaction_policy_dict:
            if key != "decoupled":
                raise ValueError(
                    f"model transaction property in auto-complete-config function for model '{self._name()}' contains "
                    "property other than 'decoupled'."
                )
        policy = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        wanted = transaction_policy_dict["decoupled"]
        if policy.get("decoupled", wanted) != wanted:
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config for model '{self._name()}', which is "
                f"already set to '{policy['decoupled']}'."
            )
        policy["decoupled"] = wanted

    def _name(self) -> str:
        return self._model_config["name"]

    def _add(self, kind: str, keys: tuple, tensor: Dict[str, Any]) -> None:
        self._check_keys(kind, keys, tensor)
        for given in self._model_config[kind]:
            if given["name"] == tensor["name"]:
                self._check_same(kind, given, tensor)
                given.update({key: tensor[key] for key in keys if key in tensor})
                return
        self._model_config[kind].append(tensor)

    def _check_keys(self, kind: str, keys: tuple, tensor: Dict[str, Any]) -> None:
        where = f"in auto-complete-config function for model '{self._name()}'"
        named = f"{kind} '{tensor.get('name', '')}' {where}"
        if any(key not in keys for key in tensor):
            raise ValueError(f"{named} contains property other than {_enumerate(keys)}.")
        for key in _OUTPUT_KEYS:
            if key not in tensor:
                raise ValueError(f"{kind + ' ' + where if key == 'name' else named} is missing '{key}' property.")

    def _check_same(self, kind: str, given: Dict[str, Any], tensor: Dict[str, Any]) -> None:
        name = tensor["name"]
        if given["data_type"] not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(
                f"unable to load model '{self._name()}', configuration expects datatype {given['data_type']} for "
                f"{kind} '{name}', model provides {tensor['data_type']}"
            )
        what = [("dims", given["dims"])] if given["dims"] else []
        if "optional" in given and "optional" in tensor:
            what.append(("optional", given["optional"]))
        for key, value in what:
            if value != tensor[key]:
                raise ValueError(
                    f"model '{self._name()}', tensor '{name}': the model expects {key} {tensor[key]} but the model "
                    f"configuration specifies {key} {value}"
                )


def _find(tensors: List[Dict[str, Any]], name: str) -> Optional[Dict[str, Any]]:
    return next((tensor for tensor in tensors if tensor["name"] == name), None)


def get_input_config_by_name(model_config: Dict[str, Any], name: str) -> Optional[Dict[str, Any]]:
    """The input of that name in a configuration, or None."""
    return _find(model_config.get("input", []), name)


def get_output_config_by_name(model_config: Dict[str, Any], name: str) -> Optional[Dict[str, Any]]:
    """The output of that name in a configuration, or None."""
    return _find(model_config.get("output", []), name)


def using_decoupled_model_transaction_policy(model_config: Dict[str, Any]) -> bool:
    """Whether a configuration makes the model decoupled."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))
