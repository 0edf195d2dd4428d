import type { Migration } from "../migrate.ts";
import { money } from "./money.ts";
import { schema } from "./schema.ts";

/**
 * In order of application; a released migration is never edited, only followed by another. The first id leaves room for
 * those of before the first release, which are not known any more.
 */
export const migrations: readonly Migration[] = [
  { id: 100, name: "the schema of the first release", statements: [...schema, ...money] },
];
