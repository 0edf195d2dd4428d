import { expect, test } from "bun:test";
import { decoyHash, hashPassword } from "../../src/rooms/accounts/password-hash.ts";

/** Algorithm, parameters and lengths, which decide how long a verification takes. */
const formOf = (hash: string) => {
  const [, algorithm, version, parameters, salt, sum] = hash.split("$");
  return { algorithm, version, parameters, salt: salt!.length, sum: sum!.length };
};

test("the decoy is verified like a real hash, and nothing matches it", async () => {
  const decoy = decoyHash();
  expect(formOf(decoy)).toEqual(formOf(await hashPassword("secret")));
  expect(await Bun.password.verify("secret", decoy)).toBe(false);
  expect(decoyHash()).not.toBe(decoy);
});
