import type { Migration } from "../migrate.ts";

export const verifiedAddresses: Migration = {
  id: 30,
  name: "verified addresses",
  statements: [
    // Whether the sign-in provider or an administrator says that the address is its owner's.
    "ALTER TABLE users ADD COLUMN email_verified {boolean} NOT NULL DEFAULT FALSE",
    "CREATE INDEX group_invitations_maker ON group_invitations (created_by)",
  ],
};
