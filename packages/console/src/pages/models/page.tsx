import { useSearch } from "../../lib/router.ts";
import { Button, Tabs } from "../../ui/controls.tsx";
import { NotFound, PageHead } from "../../ui/page.tsx";
import type { PageProps } from "../index.ts";
import { AddBackend } from "./add-backend.tsx";
import { Backends } from "./backends.tsx";
import { ModelList } from "./model-list.tsx";
import { Prices } from "./prices.tsx";
import { Providers } from "./providers.tsx";
import { Routes } from "./routes.tsx";

const TABS = [
  { id: "backends", label: "Backends", href: "/models" },
  { id: "list", label: "Models", href: "/models/list" },
  { id: "routes", label: "Model routes", href: "/models/routes" },
  { id: "prices", label: "Video prices", href: "/models/prices" },
  { id: "providers", label: "Providers", href: "/models/providers" },
];

export function Page({ params }: PageProps) {
  const [search, setSearch] = useSearch();
  const tab = params.tab ?? "backends";
  if (!TABS.some(({ id }) => id === tab)) return <NotFound />;
  return (
    <>
      <PageHead
        title="Models & backends"
        actions={
          <Button look="primary" icon="plus" onClick={() => setSearch({ new: "1" })}>
            Register backend
          </Button>
        }
      >
        The model servers behind the gateway, their health, and the models they serve.
      </PageHead>
      <Tabs label="Parts" current={tab} tabs={TABS} />
      {tab === "backends" && <Backends />}
      {tab === "list" && <ModelList />}
      {tab === "routes" && <Routes />}
      {tab === "prices" && <Prices />}
      {tab === "providers" && <Providers />}
      {search.has("new") && <AddBackend onClose={() => setSearch({ new: null, provider: null })} />}
    </>
  );
}
