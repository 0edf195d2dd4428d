/** Which of the two conventions an answer is written in. */
export interface AnswerForm {
  idPrefix: string;
  /** `object` of a whole answer and of a chunk. */
  whole: string;
  chunk: string;
  /** Each choice is a `text` instead of a message or a delta. */
  isText: boolean;
  /** Fields that limit the answer; absent: those that the backend's kind honours in a chat. */
  limitFields?: readonly string[];
}

export const CHAT_FORM: AnswerForm = {
  idPrefix: "chatcmpl-",
  whole: "chat.completion",
  chunk: "chat.completion.chunk",
  isText: false,
};

export const TEXT_FORM: AnswerForm = {
  idPrefix: "cmpl-",
  whole: "text_completion",
  chunk: "text_completion",
  isText: true,
  limitFields: ["max_tokens"],
};
