import { expect, test } from "bun:test";
import { createHmac, hkdfSync } from "node:crypto";
import { derivedKey, hmacSha256 } from "../../src/kernel/keyed-hash.ts";

const SECRETS = [1, 31, 32, 64, 65, 200].map((length) => crypto.getRandomValues(new Uint8Array(length)));

test("keys are derived as HKDF-SHA256 without a salt does", () => {
  for (const secret of SECRETS)
    expect(derivedKey(secret, "a purpose")).toEqual(
      new Uint8Array(hkdfSync("sha256", secret, "", "a purpose", 32)),
    );
});

test("the keyed hash is HMAC-SHA256", () => {
  for (const secret of SECRETS)
    expect(hmacSha256(secret, "text").toString("hex")).toBe(
      createHmac("sha256", secret).update("text").digest("hex"),
    );
});
