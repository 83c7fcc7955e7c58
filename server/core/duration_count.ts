import { create } from "@bufbuild/protobuf";
import {
  type StatisticDuration,
  StatisticDurationSchema,
} from "../../proto/gen/grpc_service_pb.ts";

/** How often something happened, and how long it took in all. */
export interface DurationCount {
  count: number;
  sumMs: number;
}

/** A count and its duration, as the statistics extension shows them. */
export function durationMessage({ count, sumMs }: DurationCount): StatisticDuration {
  return create(StatisticDurationSchema, {
    count: BigInt(count),
    ns: BigInt(Math.max(0, Math.round(sumMs * 1e6))),
  });
}
