import { BASE } from "../../lib/base.ts";
import { client, session } from "../../lib/client.ts";
import { useQuery } from "../../lib/query.ts";
import { loadSetup } from "../../lib/setup.ts";
import { useStore } from "../../lib/store.ts";
import { setTheme, theme } from "../../lib/theme.ts";
import { Copyable, Segments } from "../../ui/controls.tsx";
import { PageHead, Section } from "../../ui/page.tsx";
import { Loaded } from "../../ui/states.tsx";
import { Identities } from "./identities.tsx";
import { Password } from "./password.tsx";
import { ServiceSettings } from "./service.tsx";
import { Sessions } from "./sessions.tsx";

export function Page() {
  const user = useStore(session)?.user;
  const shown = useStore(theme);
  const health = useQuery("health", () => client.rest.health());
  const setup = useQuery("setup", loadSetup);
  if (!user) return null;
  return (
    <>
      <PageHead title="Settings" />
      <Section title="Account">
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
