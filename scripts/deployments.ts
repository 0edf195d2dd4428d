/**
 * `npm run deployments [-- <part of a path> …]`
 *
 * Runs the tests of the contract against the service as one process, as two workers, and as three instances on
 * Postgres and Redis, with a connection for each request. Other tests can be named by their paths.
 */
import "./lib/help.ts";

const CONTRACT = [
  "conformance",
  "memory",
  "routing",
  "video",
  "realtime",
  "inference",
  "foundation",
  "admin",
];
const named = process.argv.slice(2);
const filters = named.length > 0 ? named : CONTRACT.map((room) => `packages/gateway/tests/${room}/`);
const failed: string[] = [];
for (const deployment of ["", "workers", "instances"]) {
  const name = deployment || "one process";
  console.log(`\n=== ${name}`);
  const child = Bun.spawn([process.execPath, "scripts/test.ts", ...filters], {
    env: { ...process.env, TEST_DEPLOYMENT: deployment },
    stdio: ["ignore", "inherit", "inherit"],
  });
  if ((await child.exited) !== 0) failed.push(name);
}
console.log(failed.length === 0 ? "all deployments pass" : `failed: ${failed.join(", ")}`);
process.exit(failed.length === 0 ? 0 : 1);
