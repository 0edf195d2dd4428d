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

/** By the dialect that the operator's type names, else by the host, else MiniMax. Its H3 models speak the second version. */
export function chooseDialect(
  { dialect: name = "", url }: { dialect?: string; url: string },
  model = "",
): VideoDialect {
  const host = new URL(url).hostname;
  const dialect = BY_NAME[name] ?? BY_HOST.find(([pattern]) => pattern.test(host))?.[1] ?? minimaxV1;
  return dialect === minimaxV1 && name !== "minimax-v1" && /^minimax-h\d/i.test(model) ? minimaxV2 : dialect;
}
