import { speech, transcriptions } from "./audio.ts";
import { edits, generations } from "./images.ts";
import type { WorkKind } from "./kind.ts";
import { moderations, rerank } from "./texts.ts";

export const works: Readonly<Record<string, WorkKind>> = {
  imageGenerations: generations,
  imageEdits: edits,
  speech,
  transcriptions,
  rerank,
  moderations,
};
