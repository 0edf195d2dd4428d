export {
  ANSWER_LINGER_MS,
  type Answer,
  answerTooLarge,
  type FailureKind,
  type Flow,
  type HttpAnswer,
  type Origin,
  type OriginOptions,
  type PieceReader,
} from "./answer.ts";
export { type Carrier, IncomingAnswer } from "./incoming-answer.ts";
export { HttpOrigin } from "./origin.ts";
