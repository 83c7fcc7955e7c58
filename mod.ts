export { type Datatype } from "./proto/datatype.ts";
