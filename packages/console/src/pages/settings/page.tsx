import { useState } from "react";
import { BASE } from "../../lib/base.ts";
import { client, session } from "../../lib/client.ts";
import { useQuery } from "../../lib/query.ts";
import { loadSetup } from "../../lib/setup.ts";
import { useStore } from "../../lib/store.ts";
import { setTheme, theme } from "../../lib/theme.ts";
import { Button, Copyable, Segments, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { PageHead, Section } from "../../ui/page.tsx";
import { Loaded } from "../../ui/states.tsx";
import { Identities } from "./identities.tsx";
import { Password } from "./password.tsx";
import { ServiceSettings } from "./service.tsx";
import { Sessions } from "./sessions.tsx";

function Rename({ current, onClose }: { current: string; onClose(): void }) {
  const [name, setName] = useState(current);
  return (
    <FormDialog
      title="Change your name"
      submit="Save"
      onSubmit={() => client.rename(name.trim())}
      onClose={onClose}
    >
      <TextField label="Name" field="name" value={name} onChange={setName} required maxLength={80} />
    </FormDialog>
  );
}

export function Page() {
  const user = useStore(session)?.user;
  const shown = useStore(theme);
  const health = useQuery("health", () => client.rest.health());
  const setup = useQuery("setup", loadSetup);
  const [isRenaming, setRenaming] = useState(false);
  if (!user) return null;
  return (
    <>
      <PageHead title="Settings" />
      <Section
        title="Account"
        actions={
          <Button small icon="edit" onClick={() => setRenaming(true)}>
            Change name
          </Button>
        }
      >
        <dl className="facts">
          <dt>Name</dt>
          <dd>{user.name}</dd>
          <dt>Email</dt>
          <dd>{user.email}</dd>
          <dt>Rights</dt>
          <dd>{user.is_admin ? "administrator" : "user"}</dd>
          <dt>Id</dt>
          <dd>
            <Copyable text={user.id} />
          </dd>
        </dl>
        {isRenaming && <Rename current={user.name} onClose={() => setRenaming(false)} />}
      </Section>
      <Section title="Appearance">
        <Segments
          label="Theme"
          value={shown}
          onChange={setTheme}
          choices={[
            { value: "system", label: "System" },
            { value: "light", label: "Light" },
            { value: "dark", label: "Dark" },
          ]}
        />
      </Section>
      {setup.data?.password_sign_in && <Password />}
      {setup.data?.provider && <Identities />}
      <Sessions />
      {user.is_admin && <ServiceSettings />}
      <Section title="This service">
        <Loaded query={health}>
          {(data) => (
            <dl className="facts">
              <dt>Version</dt>
              <dd>{data.version}</dd>
              <dt>Build</dt>
              <dd>
                <code>{data.build_hash}</code>
              </dd>
              <dt>Documents</dt>
              <dd>
                <a href={`${BASE}/api/openrpc.json`}>OpenRPC</a>,{" "}
                <a href={`${BASE}/api/openapi.json`}>OpenAPI</a>, <a href={`${BASE}/llms.txt`}>llms.txt</a>,{" "}
                <a href={`${BASE}/metrics`}>metrics</a>
              </dd>
            </dl>
          )}
        </Loaded>
      </Section>
    </>
  );
}
