import { useState } from "react";
import { api } from "../../lib/api.ts";
import { SERVICE_URL } from "../../lib/base.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import type { AgentNode } from "../../lib/records.ts";
import { useSearch } from "../../lib/router.ts";
import { toast, toastError } from "../../lib/toast.ts";
import { Code } from "../../ui/code.tsx";
import { Button, Copyable, TextField } from "../../ui/controls.tsx";
import { Confirm, Dialog, FormDialog } from "../../ui/dialogs.tsx";
import { GpuBars, gigabytes } from "../../ui/gpus.tsx";
import { PageHead } from "../../ui/page.tsx";
import { Empty, Loaded, Note, Status, When } from "../../ui/states.tsx";
import { Deploy } from "./deploy.tsx";
import { Deployments } from "./deployments.tsx";
import { ServedModels } from "./served.tsx";

const EVERY_MS = 5_000;
const HISTORY_EVERY_MS = 30_000;

export function Page() {
  const nodes = useQuery("agents", () => api("agents.list"), { everyMs: EVERY_MS });
  const [search, setSearch] = useSearch();
  const [deploying, setDeploying] = useState(false);
  const open = nodes.data?.find(({ agent_id }) => agent_id === search.get("open"));
  const register = (
    <Button look="primary" icon="plus" onClick={() => setSearch({ new: "1" })}>
      Register node
    </Button>
  );
  return (
    <>
      <PageHead
        title="Nodes"
        actions={
          <>
            <Button
              icon="play"
              disabled={!nodes.data?.some(({ online }) => online)}
              onClick={() => setDeploying(true)}
            >
              Deploy a model
            </Button>
            {register}
          </>
        }
      >
        GPU machines that connect to this gateway and run models for it.
      </PageHead>
      <Deployments />
      <Loaded query={nodes}>
        {(list) =>
          list.length === 0 ? (
            <Empty icon="nodes" title="No nodes yet" action={register}>
              A node needs no open port: it dials out to the gateway with the token that registering it gives
              you.
            </Empty>
          ) : (
            <ul className="nodes">
              {list.map((node) => (
                <NodeRow key={node.agent_id} node={node} onOpen={() => setSearch({ open: node.agent_id })} />
              ))}
            </ul>
          )
        }
      </Loaded>
      <ServedModels />
      {search.has("new") && <RegisterNode onClose={() => setSearch({ new: null })} />}
      {deploying && <Deploy nodes={nodes.data ?? []} onClose={() => setDeploying(false)} />}
      {open && <NodeSheet node={open} onClose={() => setSearch({ open: null })} />}
    </>
  );
}

/** What is under way has a share that is done; what is over has none. */
const inWords = ({ status, progress }: Pick<AgentNode["models"][number], "status" | "progress">) =>
  status === "downloading" || status === "loading" ? `${status} ${Math.round(progress)}%` : status;

const TAGS: Partial<Record<AgentNode["models"][number]["status"], string>> = {
  ready: "accent",
  failed: "bad",
};

const DRAINING = { moving: "Draining: models move", empty: "Drained" };

function NodeState({ node: { online, draining } }: { node: AgentNode }) {
  if (online && draining) return <Status tone="warn">{DRAINING[draining]}</Status>;
  return <Status tone={online ? "good" : "bad"}>{online ? "Online" : "Offline"}</Status>;
}

/** What an engine took beside what was expected. */
function memoryInWords({ memory_mb, estimate }: AgentNode["models"][number]): string {
  const expected = estimate && `${gigabytes(estimate.total_mb)} GB expected`;
  return [memory_mb !== undefined && `${gigabytes(memory_mb)} GB`, expected].filter(Boolean).join(", ");
}

function NodeRow({ node, onOpen }: { node: AgentNode; onOpen(): void }) {
  return (
    <li>
      <div className="stack tight">
        <span className="row between">
          <strong>{node.name}</strong>
          <NodeState node={node} />
        </span>
        <span className="muted small">
          {node.host ?? "no address yet"}
          {node.version && `, version ${node.version}`}
        </span>
        <span className="row wrap">
          {node.models.length === 0 ? (
            <span className="muted small">No model deployed</span>
          ) : (
            node.models.map(({ model_id, status, progress }) => (
              <span key={model_id} className={`tag ${TAGS[status] ?? ""}`}>
                {model_id}
                {status !== "ready" && `, ${inWords({ status, progress })}`}
              </span>
            ))
          )}
        </span>
        <div>
          <Button small onClick={onOpen}>
            Details
          </Button>
        </div>
      </div>
      <GpuBars gpus={node.gpus} old={!node.online} />
    </li>
  );
}

function NodeSheet({ node, onClose }: { node: AgentNode; onClose(): void }) {
  const [removing, setRemoving] = useState(false);
  const [logOf, setLogOf] = useState<string | null>(null);
  const history = useQuery(
    node.online ? `history ${node.agent_id}` : null,
    () => api("agents.history", { agent_id: node.agent_id }),
    { everyMs: HISTORY_EVERY_MS },
  );
  const order = async (work: Promise<unknown>, said: string) => {
    try {
      await work;
      toast(said);
      invalidate("agents");
    } catch (error) {
      toastError(error);
    }
  };
  const stop = (modelId: string) =>
    order(api("agents.stop", { agent_id: node.agent_id, model_id: modelId }), `${modelId} is being stopped`);
  const drain = (draining: boolean) =>
    order(
      api("agents.drain", { agent_id: node.agent_id, draining }),
      draining ? `${node.name} is being drained` : `${node.name} serves again`,
    );
  return (
    <Dialog title={node.name} kind="sheet" onClose={onClose}>
      <div className="stack">
        <dl className="facts">
          <dt>State</dt>
          <dd>
            <NodeState node={node} />
          </dd>
          <dt>Last heard</dt>
          <dd>
            <When time={node.heartbeat_at} />
          </dd>
          <dt>Address</dt>
          <dd>{node.host ?? "unknown"}</dd>
          <dt>Version</dt>
          <dd>{node.version}</dd>
          <dt>Id</dt>
          <dd>
            <Copyable text={node.agent_id} />
          </dd>
        </dl>
        <GpuBars gpus={node.gpus} history={history.data} old={!node.online} />
        {node.models.length > 0 && (
          <ul className="lines">
            {node.models.map((model) => (
              <li key={model.model_id}>
                <span className="grow">
                  <code>{model.model_id}</code>{" "}
                  <span className={model.status === "failed" ? "bad small" : "muted small"}>
                    {[inWords(model), memoryInWords(model)].filter(Boolean).join(", ")}
                  </span>
                </span>
                <span className="row">
                  {node.online && (
                    <Button
                      small
                      aria-label={`Log of ${model.model_id}`}
                      onClick={() => setLogOf(model.model_id)}
                    >
                      Log
                    </Button>
                  )}
                  <Button small icon="stop" onClick={() => void stop(model.model_id)}>
                    Stop
                  </Button>
                </span>
                {model.message && <p className="muted small reason-lines">{model.message}</p>}
              </li>
            ))}
          </ul>
        )}
        <div className="row wrap">
          {node.online && (
            <Button onClick={() => void drain(!node.draining)}>
              {node.draining ? "Serve again" : "Drain"}
            </Button>
          )}
          <Button look="danger" icon="trash" onClick={() => setRemoving(true)}>
            Deregister
          </Button>
        </div>
      </div>
      {logOf !== null && <EngineLog node={node} modelId={logOf} onClose={() => setLogOf(null)} />}
      {removing && (
        <Confirm
          title={`Deregister ${node.name}?`}
          consequence="Its token stops working and the models it runs are no longer called."
          confirm="Deregister"
          onClose={() => setRemoving(false)}
          onConfirm={async () => {
            await api("agents.deregister", { agent_id: node.agent_id });
            invalidate("agents");
            onClose();
          }}
        />
      )}
    </Dialog>
  );
}

/** The end of what the engine wrote, which goes on while one looks. */
function EngineLog({ node, modelId, onClose }: { node: AgentNode; modelId: string; onClose(): void }) {
  const { agent_id } = node;
  const log = useQuery(
    `log ${agent_id} ${modelId}`,
    () => api("agents.log", { agent_id, model_id: modelId, lines: 200 }),
    { everyMs: EVERY_MS },
  );
  return (
    <Dialog title={`Log of ${modelId} on ${node.name}`} kind="modal wide" onClose={onClose}>
      <Loaded query={log}>
        {({ text }) =>
          text === "" ? (
            <p className="muted">The engine has written nothing yet.</p>
          ) : (
            <pre
              className="engine-log"
              role="log"
              aria-label="Engine log"
              // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, also by keyboard
              tabIndex={0}
              ref={(element) => element?.scrollTo(0, element.scrollHeight)}
            >
              {text}
            </pre>
          )
        }
      </Loaded>
    </Dialog>
  );
}

function RegisterNode({ onClose }: { onClose(): void }) {
  const [name, setName] = useState("");
  const [token, setToken] = useState<string | null>(null);
  if (token !== null) {
    return (
      <Dialog title="Start the agent on that machine" closing="when copied" onClose={onClose}>
        <div className="stack">
          <Code
            label="Start the agent"
            text={`AGENT_GATEWAY=${SERVICE_URL.replace(/^http/, "ws")} \\\nAGENT_TOKEN=${token} \\\nnpm run agent`}
          />
          <Note tone="warn">The token is shown once. The node appears here as online when it connects.</Note>
        </div>
      </Dialog>
    );
  }
  const register = async () => {
    const made = await api("agents.register", { machine_name: name, version: "unknown" });
    setToken(made.token);
    invalidate("agents");
  };
  return (
    <FormDialog
      title="Register a node"
      submit="Register"
      onSubmit={register}
      onDone={() => {}}
      onClose={onClose}
    >
      <TextField label="Name of the machine" value={name} onChange={setName} required maxLength={80} />
    </FormDialog>
  );
}
