/** Inputs that a parser once failed for: parser, seed of how they are cut, bytes in base64. */
export const CASES: readonly [parser: string, seed: number, base64: string][] = [
  // A name in brackets, which only addresses stand in, passed for a name of this machine.
  ["names", 497_422_843, "W2xvY2FsaG9zdF0="],
  ["names", 497_488_130, "WzEyNy4wLjAuMV0="],
  // A key that ends in a quote and "usage" passed for that name.
  ["usage", 1_248_185_549, "eyIiOlt7IiI6eyIiOiIifX1dLCJcInVzYWdlIjp7InRvdGFsX3Rva2VucyI6M319"],
];
