import {
  RpcFailure,
  type RpcSocketServer,
  startRpcSocketServer,
} from "@model-gateway/testing/rpc-socket-server.ts";

export interface FakeBridge extends RpcSocketServer {
  /** Where `<node>/<service>` is at this moment; absent: unreachable. */
  services: Map<string, number>;
}

/** A bridge agent whose tunnels are ports that the test listens on itself. */
export function startFakeBridge(port?: number): FakeBridge {
  const services = new Map<string, number>();
  const server = startRpcSocketServer(({ method, params }) => {
    if (method !== "Bridge.Connect") throw new RpcFailure(-32601, `Method not found: ${method}`);
    const localPort = services.get(`${params.node}/${params.service}`);
    if (localPort === undefined) throw new RpcFailure(-32000, `no route to ${params.node}`);
    return { local_port: localPort };
  }, port);
  return Object.assign(server, { services });
}
