/** `npm start`: the service, with the options that the runtime reads before any code runs. */
import { hasRuntimeOptions, startAgain } from "../packages/cli/src/service/runtime.ts";

if (!hasRuntimeOptions()) await startAgain(process.argv.slice(1));
await import("../packages/gateway/src/main.ts");
