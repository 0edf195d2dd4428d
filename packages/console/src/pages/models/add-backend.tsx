import type { Result } from "@model-gateway/client";
import { api } from "../../lib/api.ts";
import { useQuery } from "../../lib/query.ts";
import { useSearch } from "../../lib/router.ts";
import { Dialog } from "../../ui/dialogs.tsx";
import { Loaded } from "../../ui/states.tsx";
import { FoundServers } from "./found-servers.tsx";
import { BackendForm } from "./register.tsx";

type Provider = Result<"providers.list">[number];
export type Address = Result<"providers.addresses">[number];

const CUSTOM: Provider = {
  id: "custom",
  name: "Another server",
  description: "Any address; what it speaks is found out",
  website_domain: "",
  is_official: false,
  is_operator: false,
};

/** A grid of providers, then the form that the chosen one fills in; which one is in the address. */
export function AddBackend({ onClose }: { onClose(): void }) {
  const [search, setSearch] = useSearch();
  const providers = useQuery("providers", () => api("providers.list"));
  const addresses = useQuery("provider addresses", () => api("providers.addresses"));
  const chosen = search.get("provider");
  const provider = [CUSTOM, ...(providers.data ?? [])].find(({ id }) => id === chosen);
  if (provider && addresses.data)
    return (
      <BackendForm
        preset={{
          provider: provider === CUSTOM ? null : provider,
          addresses: addresses.data.filter(({ provider_id }) => provider_id === provider.id),
        }}
        onBack={() => setSearch({ provider: null })}
        onClose={onClose}
      />
    );
  return (
    <Dialog title="Register a backend" kind="modal wide" onClose={onClose}>
      <div className="stack loose">
        <FoundServers onRegistered={onClose} />
        <Loaded query={providers}>
          {(list) => (
            <Loaded query={addresses}>
              {(known) => {
                const local = new Set(known.flatMap((each) => (each.needs_key ? [] : [each.provider_id])));
                return (
                  <>
                    <Cards
                      title="Cloud"
                      providers={list.filter(({ id }) => !local.has(id))}
                      onChoose={(id) => setSearch({ provider: id })}
                    />
                    <Cards
                      title="Your own machines"
                      providers={[...list.filter(({ id }) => local.has(id)), CUSTOM]}
                      onChoose={(id) => setSearch({ provider: id })}
                    />
                  </>
                );
              }}
            </Loaded>
          )}
        </Loaded>
      </div>
    </Dialog>
  );
}

function Cards({
  title,
  providers,
  onChoose,
}: {
  title: string;
  providers: readonly Provider[];
  onChoose(id: string): void;
}) {
  return (
    <section className="stack tight">
      <h3>{title}</h3>
      <ul className="cards">
        {providers.map(({ id, name, description }) => (
          <li key={id}>
            <button type="button" className="card" onClick={() => onChoose(id)}>
              <span className="monogram" aria-hidden="true">
                {name.slice(0, 1)}
              </span>
              <span className="stack none">
                <strong>{name}</strong>
                <span className="muted small">{description}</span>
              </span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
