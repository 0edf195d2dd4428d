import type { Answer, Flow, PieceReader } from "../contract.ts";

/** Calls `ended` once, when the answer's body was read to the end, failed, or was abandoned. */
export function whenAnswerEnds(answer: Answer, signal: AbortSignal, ended: () => void): Answer {
  let isOpen = true;
  const once = () => {
    if (isOpen) ended();
    isOpen = false;
  };
  signal.addEventListener("abort", once, { once: true });
  return {
    contentType: answer.contentType,
    async bytes(bytesMax) {
      try {
        return await answer.bytes(bytesMax);
      } finally {
        once();
      }
    },
    pipe: (reader) => watchedFlow(answer, reader, once),
  };
}

function watchedFlow(answer: Answer, reader: PieceReader, once: () => void): Flow {
  const flow = answer.pipe({
    piece: (bytes) => reader.piece(bytes),
    flush: () => reader.flush(),
    end() {
      once();
      reader.end();
    },
    failed(error) {
      once();
      reader.failed(error);
    },
  });
  return {
    pause: () => flow.pause(),
    resume: () => flow.resume(),
    leave() {
      once();
      flow.leave();
    },
    cancel() {
      once();
      flow.cancel();
    },
  };
}
