import { adminToken } from "../../lib/client.ts";
import { useSearch } from "../../lib/router.ts";
import { useStore } from "../../lib/store.ts";
import { Button, Tabs } from "../../ui/controls.tsx";
import { NotFound, PageHead } from "../../ui/page.tsx";
import type { PageProps } from "../index.ts";
import { AdminTokenForm } from "./admin-token.tsx";
import { Aliases } from "./aliases.tsx";
import { Backends } from "./backends.tsx";
import { ModelList } from "./model-list.tsx";
import { Prices } from "./prices.tsx";
import { RegisterBackend } from "./register.tsx";

const TABS = [
  { id: "backends", label: "Backends", href: "/models" },
  { id: "list", label: "Models", href: "/models/list" },
  { id: "aliases", label: "Aliases", href: "/models/aliases" },
  { id: "prices", label: "Video prices & tiers", href: "/models/prices" },
];

export function Page({ params }: PageProps) {
  const token = useStore(adminToken);
  const [search, setSearch] = useSearch();
  const tab = params.tab ?? "backends";
  const open = tab === "list" || token !== null;
  if (!TABS.some(({ id }) => id === tab)) return <NotFound />;
  return (
    <>
      <PageHead
        title="Models & backends"
        actions={
          token !== null && (
            <Button look="primary" icon="plus" onClick={() => setSearch({ new: "1" })}>
              Register backend
            </Button>
          )
        }
      >
        The model servers behind the gateway, their health, and the models they serve.
      </PageHead>
      <Tabs label="Parts" current={tab} tabs={TABS} />
      {!open && <AdminTokenForm />}
      {open && tab === "backends" && <Backends />}
      {open && tab === "list" && <ModelList />}
      {open && tab === "aliases" && <Aliases />}
      {open && tab === "prices" && <Prices />}
      {token !== null && search.has("new") && <RegisterBackend onClose={() => setSearch({ new: null })} />}
    </>
  );
}
