/**
 * `npm run gen [-- --check]`
 *
 * Writes what is derived from the definitions: the reference pages and the client's types. With `--check`
 * nothing is written, and a file that differs from its source fails the command.
 */
import "./lib/help.ts";
import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { backendKinds } from "../packages/gateway/src/backends/index.ts";
import { describedSettings } from "../packages/gateway/src/config.ts";
import { rpcReference } from "../packages/gateway/src/kernel/documents.ts";
import { Registry } from "../packages/gateway/src/kernel/registry.ts";
import { surfaces } from "../packages/gateway/src/rooms/index.ts";
import { consoleRoutes } from "../packages/gateway/src/transports/console/routes.ts";
import { documentRoutes } from "../packages/gateway/src/transports/docs/routes.ts";
import { Hosts } from "../packages/gateway/src/transports/hosts.ts";
import { backendReference } from "./lib/backend-reference.ts";
import { methodTypes, notificationTypes, routeTypes } from "./lib/client-types.ts";
import { errorReference, httpReference, settingsReference } from "./lib/references.ts";

const root = join(import.meta.dir, "..");
const registry = new Registry(surfaces);
const routes = [
  ...registry.routes,
  ...documentRoutes({
    registry,
    metricsText: () => "",
    metricsToken: null,
    isSecure: false,
  }),
  ...consoleRoutes({
    hosts: new Hosts({ host: "127.0.0.1", publicUrl: null }),
    needsSetupLink: async () => false,
    registrationIsOpen: async () => false,
    firstAccountOnly: () => false,
    passwordSignIn: true,
    provider: null,
  }),
];

const files: Record<string, string> = {
  "docs/reference/rpc.md": rpcReference(registry),
  "docs/reference/http.md": httpReference(routes),
  "docs/reference/errors.md": errorReference(),
  "docs/reference/backends.md": backendReference(backendKinds.values()),
  "docs/reference/settings.md": settingsReference(describedSettings()),
  "packages/client/src/methods.gen.ts": methodTypes(registry),
  "packages/client/src/routes.gen.ts": routeTypes(routes),
  "packages/client/src/notifications.gen.ts": notificationTypes(registry),
};

const checking = process.argv.includes("--check");
const stale: string[] = [];
for (const [path, text] of Object.entries(files)) {
  const file = Bun.file(join(root, path));
  if ((await file.exists()) && (await file.text()) === text) continue;
  if (checking) {
    stale.push(path);
    continue;
  }
  await mkdir(dirname(join(root, path)), { recursive: true });
  await Bun.write(file, text);
  console.log(`wrote ${path}`);
}
if (stale.length > 0) {
  console.error(`${stale.join(", ")} differ from the definitions they are made from; run: npm run gen`);
  process.exit(1);
}
