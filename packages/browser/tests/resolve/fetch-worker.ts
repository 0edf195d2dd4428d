/** Run as a process by the tests: resolves once and prints what came of it. */
import { resolveEngine, SetupError } from "../../src/resolve/index.ts";
import { fakeHost } from "./support.ts";

// KILL_AT=phase:bytes ends this process the hard way at an exact point of the work.
const [killPhase, killBytes = "0"] = (process.env.KILL_AT ?? "").split(":");
const seen = new Set<string>();

try {
  const engine = await resolveEngine({
    backend: "chrome",
    host: fakeHost(),
    onProgress: ({ phase, doneBytes }) => {
      if (!seen.has(phase)) process.stdout.write(`phase ${phase}\n`);
      seen.add(phase);
      if (phase === killPhase && doneBytes >= Number(killBytes)) process.kill(process.pid, "SIGKILL");
    },
  });
  console.log(
    JSON.stringify({ ok: true, path: engine.kind === "cdp" ? engine.path : "", source: engine.source }),
  );
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  console.log(JSON.stringify({ ok: false, code: error.code, message: error.message }));
}
