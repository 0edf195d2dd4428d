import { parseArgs as parse } from "node:util";

/** The options of a script; one that it does not have ends it with a sentence instead of a stack. */
export const parseArgs: typeof parse = (config) => {
  try {
    return parse(config);
  } catch (error) {
    console.error(`Cannot run: ${(error as Error).message}; --help lists the options`);
    process.exit(2);
  }
};
