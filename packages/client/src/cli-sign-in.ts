/** The console's page where someone lets a command line sign in. */
export const CLI_SIGN_IN_PATH = "/cli-sign-in";

/** What the page is told in its query, and the loopback address in return. */
export interface CliSignIn {
  /** Of the command line's listener on 127.0.0.1. */
  port: number;
  /** S256 challenge of RFC 7636. */
  challenge: string;
  /** Comes back as it was sent. */
  state: string;
}

const PORT_MIN = 1_024;
const PORT_MAX = 65_535;

export const cliSignInQuery = ({ port, challenge, state }: CliSignIn): string =>
  new URLSearchParams({ port: String(port), challenge, state }).toString();

/** Null when the command line did not make it. */
export function readCliSignIn(query: URLSearchParams): CliSignIn | null {
  const port = Number(query.get("port"));
  const challenge = query.get("challenge") ?? "";
  const state = query.get("state") ?? "";
  const isPort = Number.isInteger(port) && port >= PORT_MIN && port <= PORT_MAX;
  return isPort && /^[\w-]{43}$/.test(challenge) && /^[\w-]{22,64}$/.test(state)
    ? { port, challenge, state }
    : null;
}

/** Both sides show it, so that people can see that it is their own command line that asks. */
export function cliConfirmation(challenge: string): string {
  const bytes = atob(challenge.slice(0, 8).replaceAll("-", "+").replaceAll("_", "/"));
  const hex = [...bytes.slice(0, 4)].map((byte) => byte.charCodeAt(0).toString(16).padStart(2, "0"));
  return `${hex.slice(0, 2).join("")}-${hex.slice(2).join("")}`.toUpperCase();
}
