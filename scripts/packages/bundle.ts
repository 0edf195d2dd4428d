import type { Program } from "./programs.ts";

/** The program's file; its workers lie beside it. */
export const MAIN_FILE = "main.js";

/**
 * In CommonJS the bundler would replace `import.meta.dir` by the folder of the source on the machine that builds. This
 * is where the bundle lies when it runs, as in an ES module.
 */
const FOLDER = "BUNDLE_FOLDER";
const BANNER = `var ${FOLDER} = __dirname;`;

/**
 * Writes the program and its workers to `dir`, each as one file of JavaScript with its bytecode beside it (`.jsc`).
 * Bytecode without an executable has to be CommonJS, so none of the sources may await at their top level. It is the
 * same for all systems; a Bun of another version ignores it.
 */
export const bundle = async (program: Program, dir: string): Promise<void> =>
  write(
    program,
    [{ entry: program.entry, file: MAIN_FILE }, ...program.workers],
    dir,
    await program.defines(),
  );

/** The workers alone. */
export const bundleWorkers = (program: Program, dir: string): Promise<void> =>
  write(program, program.workers, dir);

async function write(
  program: Program,
  entries: readonly { entry: string; file: string }[],
  dir: string,
  defines: Record<string, string> = {},
): Promise<void> {
  const define: Record<string, string> = { ...defines, "import.meta.dir": FOLDER };
  for (const { constant, file } of program.workers) define[constant] = JSON.stringify(`./${file}`);
  for (const { entry, file } of entries) {
    const built = await Bun.build({
      entrypoints: [entry],
      target: "bun",
      format: "cjs",
      bytecode: true,
      minify: true,
      banner: BANNER,
      outdir: dir,
      naming: { entry: file },
      define,
    });
    if (!built.success) throw new AggregateError(built.logs, `${program.name} could not be built`);
  }
}
