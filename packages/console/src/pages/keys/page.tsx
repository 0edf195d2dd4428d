import { api } from "../../lib/api.ts";
import { useQuery } from "../../lib/query.ts";
import { navigate, useSearch } from "../../lib/router.ts";
import { Button } from "../../ui/controls.tsx";
import { PageHead } from "../../ui/page.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { Table } from "../../ui/table.tsx";
import { activeFirst, useKeyColumns } from "./columns.tsx";
import { CreateKey } from "./create.tsx";
import { KeySheet } from "./sheet.tsx";

const listKeys = () => api("keys.list");

export function Page() {
  const [search, setSearch] = useSearch();
  const keys = useQuery("keys", listKeys);
  const columns = useKeyColumns("you");
  const open = keys.data?.find(({ id }) => id === search.get("open"));
  const create = () => setSearch({ new: "1" });
  return (
    <>
      <PageHead
        title="Keys"
        actions={
          <Button look="primary" icon="plus" onClick={create}>
            Create key
          </Button>
        }
      >
        Programs call the gateway with these. A key is shown once, when it is made. Copy it then: only a hash
        is stored.
      </PageHead>
      <Loaded query={keys} outline={<TableSkeleton columns={columns} />}>
        {(list) =>
          list.length === 0 ? (
            <Empty
              icon="keys"
              title="No keys yet"
              action={
                <Button look="primary" icon="plus" onClick={create}>
                  Create key
                </Button>
              }
            >
              Each program should have its own key: its use is metered under the key's project, and it can be
              revoked alone.
            </Empty>
          ) : (
            <Table
              label="Your keys"
              columns={columns}
              rows={activeFirst(list)}
              words={({ name, project, key_prefix }) => `${name} ${project} ${key_prefix}`}
              rowKey={({ id }) => id}
              dim={({ active }) => !active}
              onOpen={({ id }) => setSearch({ open: id })}
            />
          )
        }
      </Loaded>
      {search.has("new") && (
        <CreateKey
          onClose={() => setSearch({ new: null })}
          onCreated={(key) => navigate(`/keys/${key.id}/first-call`, { replace: true })}
        />
      )}
      {open && <KeySheet value={open} onClose={() => setSearch({ open: null })} />}
    </>
  );
}
