import type { Migration } from "../migrate.ts";
import { money } from "./money.ts";
import { schema } from "./schema.ts";

/** In order of application; a released migration is never edited. The first id leaves room for unreleased ones. */
export const migrations: readonly Migration[] = [
  { id: 100, name: "the schema of the first release", statements: [...schema, ...money] },
];
