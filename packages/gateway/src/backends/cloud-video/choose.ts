import { dashscope } from "./dashscope.ts";
import type { VideoDialect } from "./dialect.ts";
import { kling } from "./kling.ts";
import { minimaxV1 } from "./minimax-v1.ts";
import { minimaxV2 } from "./minimax-v2.ts";
import { seedance } from "./seedance.ts";

const BY_NAME: Readonly<Record<string, VideoDialect>> = {
  minimax: minimaxV1,
  "minimax-v1": minimaxV1,
  "minimax-v2": minimaxV2,
  dashscope,
  kling,
  seedance,
};

const BY_HOST: readonly [RegExp, VideoDialect][] = [
  [/(^|\.)(dashscope(-intl)?|[\w-]+\.maas)\.aliyuncs\.com$/, dashscope],
  [/(^|\.)klingai\.com$/, kling],
  [/(^|\.)volces\.com$/, seedance],
];

/** By the type that the operator gave, else by the host, else MiniMax. Its H3 models speak the second version. */
export function chooseDialect({
  type,
  url,
  model,
}: {
  type: string;
  url: string;
  model?: string;
}): VideoDialect {
  const named = BY_NAME[type];
  const dialect = named ?? BY_HOST.find(([host]) => host.test(new URL(url).hostname))?.[1] ?? minimaxV1;
  return dialect === minimaxV1 && type !== "minimax-v1" && model && /^minimax-h\d/i.test(model)
    ? minimaxV2
    : dialect;
}
