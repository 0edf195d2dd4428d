// Made by scripts/gen.ts from the method definitions; `npm run gen` writes it anew.

/** Params and result of every method, by name. */
export interface Methods {
  /** Sign in with email and password. */
  "auth.login": {
    auth: "public";
    params: { email: string; password: string };
    result: {
      access_token: string;
      refresh_token: string;
      token_type: "Bearer";
      /** Lifetime of the access token in seconds */
      expires_in: number;
      user: { id: string; email: string; name: string; is_admin: boolean };
    };
  };
  /** The signed-in account. */
  "auth.me": {
    auth: "jwt";
    params: Record<string, never>;
    result: { id: string; email: string; name: string };
  };
  /** Exchange a refresh token, which works once, for a fresh pair. */
  "auth.refresh": {
    auth: "public";
    params: { refresh_token: string };
    result: {
      access_token: string;
      refresh_token: string;
      token_type: "Bearer";
      /** Lifetime of the access token in seconds */
      expires_in: number;
      user: { id: string; email: string; name: string; is_admin: boolean };
    };
  };
  /** Create an account and sign in; the first account becomes the administrator. */
  "auth.register": {
    auth: "public";
    params: { email: string; password: string; name?: string };
    result: {
      access_token: string;
      refresh_token: string;
      token_type: "Bearer";
      /** Lifetime of the access token in seconds */
      expires_in: number;
      user: { id: string; email: string; name: string; is_admin: boolean };
    };
  };
  /** Issue an API key; the secret is shown once. */
  "keys.create": {
    auth: "jwt";
    params: {
      name: string;
      project?: string;
      /** Draw on this group's pool; you must be an active member */
      group_id?: string;
    };
    result: {
      id: string;
      name: string;
      /** First 8 characters of the key's uuid; usage rows carry it as api_key_id */
      key_prefix: string;
      project: string;
      /** The group whose pool and limits apply, if any */
      group_id: string | null;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
      /** The secret: service-<uuid>. It cannot be shown again */
      key: string;
    };
  };
  /** Your API keys, newest first, without their secrets. */
  "keys.list": {
    auth: "jwt";
    params: Record<string, never>;
    result: {
      id: string;
      name: string;
      /** First 8 characters of the key's uuid; usage rows carry it as api_key_id */
      key_prefix: string;
      project: string;
      /** The group whose pool and limits apply, if any */
      group_id: string | null;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
      active: boolean;
      revoked_at: string | null;
    }[];
  };
  /** Revoke one of your API keys; it stops working at once. */
  "keys.revoke": {
    auth: "jwt";
    params: { key_id: string };
    result: { ok: true };
  };
  /** Add a provider entry. */
  "providers.add": {
    auth: "admin";
    params: { id: string; name: string; description?: string; website_domain?: string };
    result: { ok: true };
  };
  /** Display metadata of providers; no credentials. */
  "providers.list": {
    auth: "public";
    params: Record<string, never>;
    result: {
      id: string;
      name: string;
      description: string;
      website_domain: string;
      is_official: boolean;
      is_operator: boolean;
    }[];
  };
  /** Remove a provider entry. */
  "providers.remove": {
    auth: "admin";
    params: { provider_id: string };
    result: { ok: true };
  };
  /** Answers that the connection test does not exist; the contract defines it so. */
  "providers.test": {
    auth: "admin";
    params: Record<string, never>;
    result: { ok: true; message: string };
  };
  /** Change a provider entry; only the given fields change. */
  "providers.update": {
    auth: "admin";
    params: { provider_id: string; name?: string; description?: string; website_domain?: string };
    result: { ok: true };
  };
  /** Start a conversation. */
  "conversations.create": {
    auth: "jwt";
    params: { title?: string };
    result: {
      id: string;
      title: string;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
      /** RFC 3339 timestamp, UTC */
      updated_at: string;
      messages: {
        id: string;
        role: string;
        content: string;
        images?: unknown[];
        tool_calls?: unknown[];
        /** RFC 3339 timestamp, UTC */
        created_at: string;
      }[];
    };
  };
  /** One of your conversations with its messages. */
  "conversations.get": {
    auth: "jwt";
    params: {
      conversation_id?: string;
      /** Older name of conversation_id, which wins when both are given */
      id?: string;
    };
    result: {
      id: string;
      title: string;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
      /** RFC 3339 timestamp, UTC */
      updated_at: string;
      messages: {
        id: string;
        role: string;
        content: string;
        images?: unknown[];
        tool_calls?: unknown[];
        /** RFC 3339 timestamp, UTC */
        created_at: string;
      }[];
    };
  };
  /** Your conversations, the most recently used first. */
  "conversations.list": {
    auth: "jwt";
    params: Record<string, never>;
    result: {
      id: string;
      title: string;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
      /** RFC 3339 timestamp, UTC */
      updated_at: string;
      created_ago: string;
      /** e.g. "5 minutes ago" */
      updated_ago: string;
      message_count: number;
    }[];
  };
  /** Delete one of your conversations with its messages. */
  "conversations.delete": {
    auth: "jwt";
    params: {
      conversation_id?: string;
      /** Older name of conversation_id, which wins when both are given */
      id?: string;
    };
    result: { ok: true };
  };
  /** Acknowledge, then close: only on a WebSocket without a token. */
  "system.probe": {
    auth: "anonymous_socket";
    params: Record<string, never>;
    result: { ok: true; status: "ok" };
  };
  /** What the service is doing right now. */
  "system.status": {
    auth: "public";
    params: Record<string, never>;
    result: {
      agents_online: number;
      gpu_nodes: number;
      models_deployed: number;
      requests_total: number;
      requests_per_minute: number;
      uptime_seconds: number;
    };
  };
}

/** Who may call each method; the client chooses the credential by it. */
export const METHOD_AUTH: { readonly [M in keyof Methods]: Methods[M]["auth"] } = {
  "auth.login": "public",
  "auth.me": "jwt",
  "auth.refresh": "public",
  "auth.register": "public",
  "keys.create": "jwt",
  "keys.list": "jwt",
  "keys.revoke": "jwt",
  "providers.add": "admin",
  "providers.list": "public",
  "providers.remove": "admin",
  "providers.test": "admin",
  "providers.update": "admin",
  "conversations.create": "jwt",
  "conversations.get": "jwt",
  "conversations.list": "jwt",
  "conversations.delete": "jwt",
  "system.probe": "anonymous_socket",
  "system.status": "public",
};
