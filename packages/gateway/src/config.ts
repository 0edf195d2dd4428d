import { fstatSync, readFileSync, statSync } from "node:fs";
import { availableParallelism, devNull } from "node:os";
import { isNetwork } from "@model-gateway/wire/http";
import { isAddress } from "@model-gateway/wire/smtp";
import { z } from "zod";

/** Asking process.stderr loads its streams, which takes 10 ms; files, pipes and /dev/null need not be asked. */
function stderrIsTerminal(): boolean {
  try {
    const stderr = fstatSync(2);
    const isNull = stderr.rdev === statSync(devNull, { throwIfNoEntry: false })?.rdev;
    return stderr.isCharacterDevice() && !isNull && process.stderr.isTTY;
  } catch {
    // It is closed.
    return false;
  }
}

const flag = z
  .string()
  .toLowerCase()
  .pipe(z.enum(["1", "true", "0", "false"], "must be true, false, 1 or 0"))
  .transform((text) => text === "1" || text === "true");
const integer = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d+$/, "must be a whole number")
    .transform(Number)
    .pipe(z.number().min(min, `must be at least ${min}`).max(max, `must be at most ${max}`));
const list = z.string().transform((text) =>
  text
    .split(",")
    .map((item) => item.trim())
    .filter(Boolean),
);
const WORKERS_MAX = 64;
const workers = z
  .string()
  .transform((text) => (text === "auto" ? String(Math.min(availableParallelism(), WORKERS_MAX)) : text))
  .pipe(
    z
      .string()
      .regex(/^\d+$/, "must be a whole number, or auto")
      .transform(Number)
      .pipe(z.int().min(1).max(WORKERS_MAX)),
  );
const networks = list.refine(
  (items) => items.every(isNetwork),
  "must be addresses (10.0.0.7) or networks (10.0.0.0/8), separated by commas",
);
const url = (...protocols: string[]) =>
  z
    .string()
    .refine(
      (text) => URL.canParse(text) && protocols.includes(new URL(text).protocol),
      `must be a URL that begins with ${protocols.map((protocol) => `${protocol}//`).join(" or ")}`,
    );

const email = z.string().refine(isAddress, "must be email addresses");

/** An OpenID Connect issuer; http is for a provider on this machine. */
const issuer = url("https:", "http:").refine((text) => {
  const { protocol, hostname } = new URL(text);
  return protocol === "https:" || /^(localhost|127\.[\d.]+|\[::1\])$/.test(hostname);
}, "must begin with https:// unless the provider runs on this machine");

const claimRule = z.string().transform((text, context) => {
  const at = text.indexOf("=");
  if (at < 1 || at === text.length - 1)
    context.addIssue({ code: "custom", message: "must be a claim and its value: claim=value" });
  return { claim: text.slice(0, at).trim(), value: text.slice(at + 1).trim() };
});

/** `name=value` pairs separated by commas, values percent-encoded, as OpenTelemetry writes headers. */
const headerList = list.transform((pairs, context) => {
  const headers: Record<string, string> = {};
  for (const pair of pairs) {
    const at = pair.indexOf("=");
    try {
      if (at < 1) throw new Error("no name");
      headers[pair.slice(0, at).trim().toLowerCase()] = decodeURIComponent(pair.slice(at + 1).trim());
    } catch {
      context.addIssue({ code: "custom", message: "must be name=value pairs separated by commas" });
    }
  }
  return headers;
});

interface Setting<T> {
  name: string;
  help: string;
  schema: z.ZodType<T, string | null | undefined>;
  shown: string;
}

const setting = <T>(
  name: string,
  help: string,
  schema: Setting<T>["schema"],
  shown?: string,
): Setting<T> => ({ name, help, schema, shown: shown ?? String(schema.parse(undefined) ?? "none") });
const optional = <T>(schema: z.ZodType<T, string>) => schema.nullable().default(null);

export const TOKEN_LENGTH_MIN = 16;
const Token = z
  .string()
  .min(
    TOKEN_LENGTH_MIN,
    `must have at least ${TOKEN_LENGTH_MIN} characters, or it can be guessed; openssl rand -hex 32 makes one`,
  );

/** Every setting, once: name, meaning, form and default. `--help`, validation and the type come from here. */
const settings = {
  host: setting("SERVICE_HOST", "address to listen on", z.string().min(1).default("127.0.0.1")),
  port: setting("SERVICE_PORT", "port to listen on; 0 takes a free one", integer(0, 65_535).default(8080)),
  reusePort: setting("SERVICE_REUSE_PORT", "let several processes share the port", flag.default(false)),
  workers: setting(
    "SERVICE_WORKERS",
    "processes that serve the port together (Linux); auto: one for each processor core",
    workers.default(1),
  ),
  tlsCert: setting(
    "SERVICE_TLS_CERT",
    "file with the TLS certificate and its chain (PEM), read again when it is renewed; unset: plain HTTP",
    optional(z.string().min(1)),
  ),
  tlsKey: setting(
    "SERVICE_TLS_KEY",
    "file with the certificate's private key (PEM)",
    optional(z.string().min(1)),
  ),
  connectionsMax: setting(
    "SERVICE_CONNECTIONS_MAX",
    "client connections at once; more are refused with 503",
    optional(integer(16, 1_000_000)),
    "80 % of the open files allowed",
  ),
  uploadBytesMax: setting(
    "SERVICE_UPLOAD_BYTES_MAX",
    "largest body with files, such as POST /v1/audio/transcriptions takes",
    integer(1024, 1024 * 1024 * 1024).default(64 * 1024 * 1024),
  ),
  dataDir: setting(
    "SERVICE_DATA_DIR",
    "directory of the embedded database, journal and secrets",
    z.string().min(1).default("./data"),
  ),
  databaseUrl: setting(
    "SERVICE_DATABASE_URL",
    "postgres:// URL; unset: SQLite in the data directory",
    optional(url("postgres:", "postgresql:")),
    "SQLite",
  ),
  redisUrl: setting(
    "SERVICE_REDIS_URL",
    "redis:// URL that instances share; unset: one process alone",
    optional(url("redis:", "rediss:")),
  ),
  adminToken: setting(
    "SERVICE_ADMIN_TOKEN",
    "bearer for /api/admin/* and the admin-token methods; unset: those are refused",
    optional(z.string()),
  ),
  metricsToken: setting(
    "SERVICE_METRICS_TOKEN",
    "bearer that GET /metrics asks for; unset: it is open to everyone",
    optional(Token),
  ),
  registrationOpen: setting(
    "SERVICE_REGISTRATION_OPEN",
    "may people register? unset: until the first user exists",
    optional(flag),
    "first user only",
  ),
  memberInvitationsRegister: setting(
    "SERVICE_MEMBER_INVITATIONS_REGISTER",
    "may invitations to groups register people when no administrator of the service made them?",
    flag.default(false),
  ),
  newAccountTier: setting(
    "SERVICE_NEW_ACCOUNT_TIER",
    "tier of people who register, and of invitations that name none",
    z.string().min(1).max(64).default("free"),
  ),
  invitationDays: setting(
    "SERVICE_INVITATION_DAYS",
    "how long invitations to the service, and links to choose a password, can be used",
    integer(1, 90).default(7),
  ),
  publicUrl: setting(
    "SERVICE_PUBLIC_URL",
    "URL under which people open the service, where it is not an address or localhost",
    optional(url("http:", "https:")),
  ),
  passwordSignIn: setting(
    "SERVICE_PASSWORD_SIGN_IN",
    "may people sign in with a password?",
    flag.default(true),
  ),
  oidcIssuer: setting(
    "SERVICE_OIDC_ISSUER",
    "issuer URL of the OpenID Connect provider that people sign in with; needs SERVICE_PUBLIC_URL",
    optional(issuer),
  ),
  oidcClientId: setting(
    "SERVICE_OIDC_CLIENT_ID",
    "this service's client id at the provider; its redirect URI there is SERVICE_PUBLIC_URL + /signed-in",
    optional(z.string().min(1)),
  ),
  oidcClientSecret: setting(
    "SERVICE_OIDC_CLIENT_SECRET",
    "its secret; unset: a public client",
    optional(z.string().min(1)),
  ),
  oidcScopes: setting(
    "SERVICE_OIDC_SCOPES",
    "scopes that the provider is asked for",
    z
      .string()
      .refine((text) => text.split(" ").includes("openid"), "must have openid among its scopes")
      .default("openid email profile"),
  ),
  oidcLabel: setting(
    "SERVICE_OIDC_LABEL",
    "words on the button of the sign-in page",
    z.string().min(1).max(60).default("Sign in with single sign-on"),
  ),
  oidcAdmin: setting(
    "SERVICE_OIDC_ADMIN",
    "claim=value that makes administrators, at each sign-in; unset: administrators are made here",
    optional(claimRule),
  ),
  oidcGroupsClaim: setting(
    "SERVICE_OIDC_GROUPS_CLAIM",
    "claim with the names of the groups that someone is a member of, at each sign-in",
    optional(z.string().min(1).max(256)),
  ),
  oidcEmailDomains: setting(
    "SERVICE_OIDC_EMAIL_DOMAINS",
    "domains whose addresses may get an account, separated by commas",
    list.transform((domains) => domains.map((domain) => domain.toLowerCase().replace(/^@/, ""))).default([]),
    "all",
  ),
  oidcRegistration: setting(
    "SERVICE_OIDC_REGISTRATION",
    "does everyone whom the provider knows get an account?",
    flag.default(true),
  ),
  oidcLinkByEmail: setting(
    "SERVICE_OIDC_LINK_BY_EMAIL",
    "give existing accounts with a verified address to those who have it at the provider",
    flag.default(false),
  ),
  oidcTrustEmail: setting(
    "SERVICE_OIDC_TRUST_EMAIL",
    "take the provider's addresses as verified even if it does not say so",
    flag.default(false),
  ),
  apiRateLimitRpm: setting(
    "SERVICE_API_RATE_LIMIT_RPM",
    "requests a minute that each API key may make",
    integer(1, 100_000_000).default(60),
  ),
  pointsPerUsd: setting(
    "POINTS_PER_USD",
    "points that one US dollar is worth",
    integer(1, 1_000_000).default(100),
  ),
  jwtSecret: setting(
    "SERVICE_JWT_SECRET",
    "key that signs access tokens; unset: made once, kept in the data directory",
    optional(z.string().min(32, "must have at least 32 characters")),
    "generated",
  ),
  memoryUrl: setting(
    "SERVICE_MEMORY_URL",
    "WebSocket URL of the memory service; unset: no memory",
    optional(url("ws:", "wss:")),
  ),
  bridgeUrl: setting(
    "SERVICE_BRIDGE_URL",
    "WebSocket URL of the bridge agent",
    url("ws:", "wss:").default("ws://127.0.0.1:7717"),
  ),
  nodesOnLoopback: setting(
    "SERVICE_NODES_ON_LOOPBACK",
    "may a node give 127.0.0.1 as its host, to be dialled there? otherwise it is reached through its own connection",
    flag.default(false),
  ),
  pricingFile: setting(
    "SERVICE_PRICING_FILE",
    "JSON file with prices that override the built-in ones",
    optional(z.string().min(1)),
  ),
  unpriced: setting(
    "SERVICE_UNPRICED",
    "serve: models without a price cost nothing; refuse: those who pay by points, quota or budget cannot use them",
    z.enum(["serve", "refuse"]).default("serve"),
  ),
  usageRetentionMonths: setting(
    "SERVICE_USAGE_RETENTION_MONTHS",
    "whole months before the current one whose usage rows are kept; their totals always are",
    optional(integer(1, 1_200)),
    "all",
  ),
  auditRetentionDays: setting(
    "SERVICE_AUDIT_RETENTION_DAYS",
    "days for which entries of the audit log are kept",
    integer(1, 3_650).default(365),
  ),
  requestRecordsDays: setting(
    "SERVICE_REQUEST_RECORDS_DAYS",
    "days for which requests are listed, and kept if nothing was charged; 0: none are",
    integer(0, 3_650).default(30),
  ),
  requestRecordsMax: setting(
    "SERVICE_REQUEST_RECORDS_MAX",
    "requests without a charge that are kept; the oldest go first",
    integer(1_000, 1_000_000_000).default(1_000_000),
  ),
  trustedProxies: setting(
    "SERVICE_TRUSTED_PROXIES",
    "addresses or networks (10.0.0.0/8) whose X-Forwarded-For is trusted, separated by commas",
    networks.default([]),
    "none",
  ),
  corsOrigins: setting(
    "SERVICE_CORS_ORIGINS",
    "origins that browsers may call from, separated by commas",
    list.default([]),
    "none",
  ),
  backendChoice: setting(
    "SERVICE_BACKEND_CHOICE",
    "requests: of several backends that serve a model, the one with the fewest so far; latency: the one that answers soonest",
    z.enum(["requests", "latency"]).default("requests"),
  ),
  upstreamErrors: setting(
    "SERVICE_UPSTREAM_ERRORS",
    "wrap: /v1/chat/completions and /v1/embeddings answer 502 to what an upstream refuses; pass: with its 400, 404, 413, 415 or 422",
    z.enum(["wrap", "pass"]).default("wrap"),
  ),
  storeResponses: setting(
    "SERVICE_STORE_RESPONSES",
    "keep what POST /v1/responses asks and answers for 30 days, for `previous_response_id`; false: keep nothing",
    flag.default(true),
  ),
  logFormat: setting(
    "SERVICE_LOG",
    "json or pretty",
    z.enum(["json", "pretty"]).default(stderrIsTerminal() ? "pretty" : "json"),
    "pretty on a terminal, else json",
  ),
  logLevel: setting(
    "SERVICE_LOG_LEVEL",
    "debug, info, warn or error",
    z.enum(["debug", "info", "warn", "error"]).default("info"),
  ),
  otlpEndpoint: setting(
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "base URL of an OpenTelemetry collector (OTLP over HTTP); unset: no tracing",
    optional(url("http:", "https:")),
  ),
  otlpHeaders: setting(
    "OTEL_EXPORTER_OTLP_HEADERS",
    "headers for the collector: name=value,name=value",
    headerList.default({}),
    "none",
  ),
  otlpServiceName: setting(
    "OTEL_SERVICE_NAME",
    "name of this service in traces",
    z.string().min(1).max(255).default("model-gateway"),
  ),
  alertWebhookUrl: setting(
    "SERVICE_ALERT_WEBHOOK_URL",
    "URL that alerts are posted to, such as a backend that is down",
    optional(url("https:", "http:")),
  ),
  alertWebhookSecret: setting(
    "SERVICE_ALERT_WEBHOOK_SECRET",
    "key that signs them, as standardwebhooks.com has it",
    optional(Token),
  ),
  alertSmtpUrl: setting(
    "SERVICE_ALERT_SMTP_URL",
    "server that alerts are mailed by: smtps://user:password@host, or smtp://host:587 with STARTTLS",
    optional(url("smtps:", "smtp:")),
  ),
  alertMailFrom: setting("SERVICE_ALERT_MAIL_FROM", "sender of alerts", optional(email)),
  alertMailTo: setting(
    "SERVICE_ALERT_MAIL_TO",
    "addresses that alerts are mailed to, separated by commas",
    list.pipe(z.array(email)).default([]),
    "none",
  ),
  warmUp: setting(
    "SERVICE_WARM_UP",
    "requests of each common kind that a service within this one serves after a start, so that their code is compiled; they leave nothing behind",
    integer(0, 10_000).default(300),
  ),
  drainGraceMs: setting(
    "SERVICE_DRAIN_GRACE_MS",
    "how long /readyz answers 503 before the listener closes",
    integer(0, 600_000).default(500),
  ),
  drainTimeoutMs: setting(
    "SERVICE_DRAIN_TIMEOUT_MS",
    "how long open streams may continue after SIGTERM",
    integer(0, 3_600_000).default(30_000),
  ),
};

type Settings = typeof settings;
export type Config = { [K in keyof Settings]: Settings[K] extends Setting<infer T> ? T : never } & {
  /** Plain-http requests go through a proxy (HTTP_PROXY). */
  usesHttpProxy: boolean;
  /** Names of the settings that the environment has. */
  fromEnvironment: readonly string[];
};

/** What administrators may change while the service runs, as far as the environment leaves it open. */
const CHANGEABLE = [
  "registrationOpen",
  "memberInvitationsRegister",
  "newAccountTier",
  "invitationDays",
  "apiRateLimitRpm",
  "usageRetentionMonths",
  "auditRetentionDays",
  "requestRecordsDays",
] as const satisfies readonly (keyof Settings)[];

/** Each changes `config` in place: the rooms read it where they use it. */
export const changeableSettings = (config: Config) =>
  CHANGEABLE.map((key) => {
    const { name, help, schema, shown } = settings[key];
    const atStart = config[key];
    const read = (text: string) => schema.safeParse(text);
    return {
      name,
      help,
      shown,
      isFixed: config.fromEnvironment.includes(name),
      value: () => (config[key] === null ? null : String(config[key])),
      problemOf: (text: string) => read(text).error?.issues[0]?.message ?? null,
      set(text: string | null) {
        Object.assign(config, { [key]: text === null ? atStart : read(text).data });
      },
    };
  });

/** Settings that may also stand in a file, named by the same variable with `_FILE` added. */
const SECRETS: ReadonlySet<string> = new Set([
  "SERVICE_ADMIN_TOKEN",
  "SERVICE_METRICS_TOKEN",
  "SERVICE_JWT_SECRET",
  "SERVICE_DATABASE_URL",
  "SERVICE_REDIS_URL",
  "SERVICE_OIDC_CLIENT_SECRET",
  "SERVICE_ALERT_WEBHOOK_SECRET",
  "SERVICE_ALERT_SMTP_URL",
]);
const FILE_SUFFIX = "_FILE";
const PREFIX = "SERVICE_";
const known = new Set(Object.values(settings).map(({ name }) => name));

/** The configuration, or everything that is wrong with the environment; nothing else reads the environment. */
export function readConfig(
  env: Record<string, string | undefined>,
): { config: Config } | { problems: string[] } {
  const problems: string[] = [];
  const fromFile = (name: string) => (SECRETS.has(name) ? env[name + FILE_SUFFIX] : undefined);
  for (const name of Object.keys(env)) {
    const isFile = name.endsWith(FILE_SUFFIX) && SECRETS.has(name.slice(0, -FILE_SUFFIX.length));
    if (name.startsWith(PREFIX) && !known.has(name) && !isFile)
      problems.push(`${name} is not a setting; npm start -- --help lists them all`);
  }
  const config: Record<string, unknown> = {
    usesHttpProxy: Boolean(env.HTTP_PROXY || env.http_proxy),
    fromEnvironment: [...known].filter((name) => env[name]),
  };
  for (const [key, { name, schema }] of Object.entries(settings)) {
    let text = env[name];
    const file = fromFile(name);
    if (file) {
      if (text) problems.push(`${name} and ${name}${FILE_SUFFIX} are both set; unset one`);
      try {
        text = readFileSync(file, "utf8").trim();
        if (text === "") problems.push(`${name}${FILE_SUFFIX}: ${file} is empty`);
      } catch (error) {
        problems.push(`${name}${FILE_SUFFIX}: ${(error as Error).message}`);
      }
    }
    const parsed = schema.safeParse(text || undefined);
    if (parsed.success) config[key] = parsed.data;
    else problems.push(`${name}: ${parsed.error.issues[0]?.message ?? "has a bad value"}`);
  }
  if (problems.length === 0) problems.push(...contradictions(config as Config));
  return problems.length ? { problems } : { config: config as Config };
}

/** Settings that are good alone and wrong together. */
function contradictions(config: Config): string[] {
  const { oidcIssuer, oidcClientId, publicUrl, passwordSignIn } = config;
  const checks: [boolean, string][] = [
    [
      config.workers > 1 && process.platform !== "linux",
      "SERVICE_WORKERS: only Linux spreads the connections of one port over several processes; start one here",
    ],
    [
      (config.tlsCert === null) !== (config.tlsKey === null),
      "SERVICE_TLS_CERT and SERVICE_TLS_KEY belong together: set both, or neither",
    ],
    [
      (oidcIssuer === null) !== (oidcClientId === null),
      "SERVICE_OIDC_ISSUER and SERVICE_OIDC_CLIENT_ID: set both or neither",
    ],
    [
      (config.alertWebhookUrl === null) !== (config.alertWebhookSecret === null),
      "SERVICE_ALERT_WEBHOOK_URL and SERVICE_ALERT_WEBHOOK_SECRET: set both or neither",
    ],
    [
      config.alertSmtpUrl !== null && (config.alertMailFrom === null || config.alertMailTo.length === 0),
      "SERVICE_ALERT_SMTP_URL: must be set with SERVICE_ALERT_MAIL_FROM and SERVICE_ALERT_MAIL_TO",
    ],
    [
      oidcIssuer !== null && publicUrl === null,
      "SERVICE_PUBLIC_URL: must be set with SERVICE_OIDC_ISSUER; the provider sends people back there",
    ],
    [
      !passwordSignIn && oidcIssuer === null,
      "SERVICE_PASSWORD_SIGN_IN: without passwords and without SERVICE_OIDC_ISSUER nobody could sign in",
    ],
  ];
  return checks.filter(([isWrong]) => isWrong).map(([, problem]) => problem);
}

/** Every setting with its meaning and default, for people. */
export const describedSettings = (): { name: string; help: string; shown: string }[] =>
  Object.values(settings).map(({ name, help, shown }) => ({
    name,
    help: SECRETS.has(name) ? `${help}; or ${name}${FILE_SUFFIX} with a file that has it` : help,
    shown: String(shown),
  }));

export function describeSettings(): string {
  const described = describedSettings();
  const width = Math.max(...described.map(({ name }) => name.length));
  return described
    .map(({ name, help, shown }) => `  ${name.padEnd(width)}  ${help} (default: ${shown})`)
    .join("\n");
}
