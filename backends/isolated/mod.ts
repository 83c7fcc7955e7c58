export { IsolationChoice } from "./isolation_choice.ts";
