/**
 * JSON-RPC calls over WebSockets, one after the other on each. Reads a `SocketPlan` from its standard input and
 * prints how many were answered and how many with an error.
 */
export interface SocketPlan {
  url: string;
  message: string;
  connections: number;
  requests: number;
}

export interface SocketReport {
  requests: number;
  errors: number;
}

async function load({ url, message, connections, requests }: SocketPlan): Promise<SocketReport> {
  const report = { requests: 0, errors: 0 };
  let left = requests;
  const lane = () =>
    new Promise<void>((resolve, reject) => {
      const socket = new WebSocket(url);
      const next = () => (left-- > 0 ? socket.send(message) : socket.close());
      socket.onopen = next;
      socket.onmessage = ({ data }) => {
        report.requests++;
        if (!String(data).includes('"result"')) report.errors++;
        next();
      };
      socket.onclose = () => resolve();
      socket.onerror = () => reject(new Error("a WebSocket failed"));
    });
  await Promise.all(Array.from({ length: connections }, lane));
  return report;
}

if (import.meta.main) console.log(JSON.stringify(await load(await Bun.stdin.json())));
