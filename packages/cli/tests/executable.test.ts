/** The built executable finds the code of its threads within itself. */
import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { settleChat } from "@model-gateway/testing/built-gateway.ts";

const root = join(import.meta.dir, "../../..");

test(
  "the executable brings the usage of a chat into its database",
  async () => {
    const dir = mkdtempSync(join(tmpdir(), "gateway-executable-"));
    const outfile = join(dir, "model-gateway");
    const built = Bun.spawnSync([process.execPath, "scripts/build-gateway.ts", "--outfile", outfile], {
      cwd: root,
    });
    expect(built.exitCode).toBe(0);
    try {
      // Elsewhere than the sources, which it must not need.
      await settleChat([outfile], { dir, env: process.env });
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
  },
  { timeout: 120_000 },
);
