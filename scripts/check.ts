/** `npm run check`: every static check, side by side; all of them report, and one failure fails the command. */
import "./lib/help.ts";

const checks: Record<string, string[]> = {
  "lint and format": ["node_modules/.bin/biome", "check", "--error-on-warnings", "."],
  types: ["node_modules/.bin/tsc", "--noEmit"],
  imports: [process.execPath, "scripts/check-imports.ts"],
  "map of the folders": [process.execPath, "scripts/check-map.ts"],
  generated: [process.execPath, "scripts/gen.ts", "--check"],
};

const results = await Promise.all(
  Object.entries(checks).map(async ([name, command]) => {
    const child = Bun.spawn(command, { stdout: "pipe", stderr: "pipe" });
    const [out, err, code] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
      child.exited,
    ]);
    return { name, code, output: `${out}${err}`.trim() };
  }),
);

let failed = 0;
for (const { name, code, output } of results) {
  console.log(`${code === 0 ? "ok  " : "FAIL"} ${name}`);
  if (code !== 0) {
    failed++;
    console.log(output);
  }
}
process.exit(failed ? 1 : 0);
