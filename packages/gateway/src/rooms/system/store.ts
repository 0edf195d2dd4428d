import { insertRow, type Queryable } from "../../storage/contract.ts";

interface SettingRow {
  name: string;
  value: string;
}

/** What administrators changed of the settings. */
export const store = {
  all: (on: Queryable): Promise<SettingRow[]> => on.all("SELECT name, value FROM service_settings"),
  save: (on: Queryable, row: SettingRow): Promise<boolean> =>
    insertRow(on, "service_settings", row, "ON CONFLICT (name) DO UPDATE SET value = excluded.value"),
  remove: (on: Queryable, name: string): Promise<number> =>
    on.run("DELETE FROM service_settings WHERE name = $1", [name]),
};
