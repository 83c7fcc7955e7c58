"""What this process is: which model it runs and how far it is. One per process, filled by `nereid_stub`."""

from __future__ import annotations

from typing import FrozenSet, Optional, Set

from nereid_link import Link


class Session:
    """State that the classes of `triton_python_backend_utils` refer to."""

    def __init__(self) -> None:
        self.link: Optional[Link] = None
        self.model_name = ""
        #: As in error texts: `<group>_<index>`.
        self.instance_name = ""
        self.model_path = ""
        self.version_directory = ""
        self.is_decoupled = False
        #: Names of the outputs of the configuration: what a request asks for that names none.
        self.outputs: FrozenSet[str] = frozenset()
        self.verbose_level = 0
        #: Between the end of `initialize` and the begin of `finalize` other models may be called.
        self.may_call = False
        #: Numbers of requests whose clients have gone.
        self.cancelled: Set[int] = set()

    def describe(self, hello: dict) -> None:
        """Takes over what HELLO says (wire.md)."""
        model = hello["model"]
        self.model_name = model["name"]
        self.instance_name = model["instance"]
        self.model_path = model["path"]
        self.version_directory = model["versionDirectory"]
        self.is_decoupled = bool(model["decoupled"])
        self.outputs = frozenset(model["outputs"])
        self.verbose_level = hello.get("log", 0)


session = Session()
