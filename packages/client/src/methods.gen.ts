// Made by scripts/gen.ts from the definitions; `npm run gen` writes it anew.

/** Params and result of every method, by name. */
export interface Methods {
  /** Use a one-time link: choose a password, and sign in. */
  "auth.link.accept": {
    auth: "public";
    params: { token: string; password: string; email?: string; name?: string };
    result: {
      access_token: string;
      refresh_token: string;
      token_type: "Bearer";
      /** Lifetime of the access token in seconds */
      expires_in: number;
      user: { id: string; email: string; name: string; is_admin: boolean };
    };
  };
  /** Make an account; its owner chooses the password with the one-time link. */
  "users.create": {
    auth: "admin";
    params: { email: string; name?: string; is_admin?: boolean; tier?: string };
    result: {
      id: string;
      email: string;
      name: string;
      link: {
        id: string;
        /** For the link; it cannot be shown again */
        token: string;
        /** RFC 3339 timestamp, UTC */
        expires_at: string;
      };
    };
  };
  /** Sign out of one session, or of all others; their tokens stop working at once. */
  "auth.sessions.end": {
    auth: "jwt";
    params: {
      /** Left out: all but the session of this call */
      session_id?: string;
    };
    result: { ended: number };
  };
  /** Make a one-time link with which someone registers. */
  "users.invite": {
    auth: "admin";
    params: {
      /** Only an account with this email can be made */
      email?: string;
      tier?: string;
    };
    result: {
      id: string;
      /** For the link; it cannot be shown again */
      token: string;
      /** RFC 3339 timestamp, UTC */
      expires_at: string;
    };
  };
  /** One-time links that can still be used, newest first. */
  "users.links.list": {
    auth: "admin";
    params: Record<string, never>;
    result: {
      id: string;
      kind: "invitation" | "password";
      email: string | null;
      /** Name of the administrator */
      created_by: string;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
      /** RFC 3339 timestamp, UTC */
      expires_at: string;
    }[];
  };
  /** Where you are signed in, the session used last first. */
  "auth.sessions.list": {
    auth: "jwt";
    params: Record<string, never>;
    result: {
      id: string;
      /** The session of this call */
      current: boolean;
      ip: string | null;
      user_agent: string | null;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
      /** When its tokens were last renewed */
      last_used_at: string;
    }[];
  };
  /** Accounts, newest first. */
  "users.list": {
    auth: "admin";
    params: {
      /** Part of the email or the name */
      search?: string;
      limit?: number;
      offset?: number;
    };
    result: {
      users: {
        id: string;
        email: string;
        name: string;
        is_admin: boolean;
        tier: string;
        disabled: boolean;
        /** RFC 3339 timestamp, UTC */
        created_at: string;
        /** When a session of theirs was last renewed */
        last_seen_at: string | null;
        active_keys: number;
      }[];
      total: number;
    };
  };
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
    params: {
      email: string;
      password: string;
      name?: string;
      /** From the setup link; only the first account may need it */
      setup_token?: string;
    };
    result: {
      access_token: string;
      refresh_token: string;
      token_type: "Bearer";
      /** Lifetime of the access token in seconds */
      expires_in: number;
      user: { id: string; email: string; name: string; is_admin: boolean };
    };
  };
  /** End an account's password and sessions; its owner chooses a new password with the one-time link. */
  "users.password.reset": {
    auth: "admin";
    params: { user_id: string };
    result: {
      id: string;
      /** For the link; it cannot be shown again */
      token: string;
      /** RFC 3339 timestamp, UTC */
      expires_at: string;
    };
  };
  /** End a one-time link that was not used. */
  "users.links.revoke": {
    auth: "admin";
    params: { link_id: string };
    result: { ok: true };
  };
  /** Change your password; your other sessions end. */
  "auth.password.set": {
    auth: "jwt";
    params: { current_password: string; new_password: string };
    result: { ok: true };
  };
  /** What a one-time link is for, and who made it. */
  "auth.link.show": {
    auth: "public";
    params: { token: string };
    result: {
      /** Make an account, or choose the password of one */
      kind: "invitation" | "password";
      invited_by: string;
      /** Null: the bearer chooses */
      email: string | null;
      name: string | null;
      /** RFC 3339 timestamp, UTC */
      expires_at: string;
    };
  };
  /** Change an account; what is left out stays. A disabled one's keys and sessions end at once. */
  "users.update": {
    auth: "admin";
    params: { user_id: string; name?: string; tier?: string; is_admin?: boolean; disabled?: boolean };
    result: { ok: true };
  };
  /** Your wallet: balance and recent entries. With the admin token: the account that issues points. */
  "ledger.self": {
    auth: "jwt_or_admin_token";
    params: Record<string, never>;
    result: {
      /** Points */
      balance: number;
      /** The newest 50, newest first */
      entries: {
        /** Counts the account's entries from 1, without gaps */
        seq: number;
        kind: "topup" | "allocation" | "settlement" | "return" | "debt" | "repayment" | "takeover";
        /** What the entry added, or took when negative */
        points: number;
        balance_after: number;
        /** The account on the other side of the movement */
        counterparty: { type: "user" | "group" | "debt" | "system"; id: string };
        /** Of a settlement or a debt: the request */
        request_id: string | null;
        note: string | null;
        /** RFC 3339 timestamp, UTC */
        created_at: string;
      }[];
      /** Points owed on this account: served, and covered neither by points nor by a quota */
      debt: number;
      /** Who owes them; nothing is admitted for these people on this account until it is paid */
      debts: { user_id: string; points: number }[];
      /** The newest 50 entries of the debts, newest first; their balance is minus what is owed */
      debt_entries: {
        /** Counts the account's entries from 1, without gaps */
        seq: number;
        kind: "topup" | "allocation" | "settlement" | "return" | "debt" | "repayment" | "takeover";
        /** What the entry added, or took when negative */
        points: number;
        balance_after: number;
        /** The account on the other side of the movement */
        counterparty: { type: "user" | "group" | "debt" | "system"; id: string };
        /** Of a settlement or a debt: the request */
        request_id: string | null;
        note: string | null;
        /** RFC 3339 timestamp, UTC */
        created_at: string;
        user_id: string;
      }[];
      account: { type: "user" | "system"; id: string };
      /** What you owe on the pools of groups */
      group_debts: { group_id: string; points: number }[];
    };
  };
  /** Join a group by invitation; harmless for someone who is in already. */
  "group.invite.accept": {
    auth: "jwt";
    params: { token: string };
    result: {
      id: string;
      name: string;
      description: string;
      /** Null for a platform administrator who is not a member */
      my_role: "owner" | "admin" | "member" | null;
      /** Active members */
      member_count: number;
      /** Group keys may use only the allowed models */
      enforce_model_allowlist: boolean;
      /** Requests a minute for all keys of the group together; null: no ceiling */
      rpm_ceiling: number | null;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
    };
  };
  /** Add someone who has an account; of someone who is in already, what is given changes. */
  "group.members.add": {
    auth: "jwt";
    params: {
      group_id: string;
      /** The member's email; a user id works too */
      email: string;
      role?: "admin" | "member";
      /** What a request costs the pool is multiplied by this; kept to 6 decimals. Below 1 only by a platform administrator */
      cost_multiplier?: number;
    };
    result: {
      user_id: string;
      email: string;
      name: string;
      role: "admin" | "member";
      is_owner: boolean;
      cost_multiplier: number;
      is_active: boolean;
      /** RFC 3339 timestamp, UTC */
      joined_at: string;
    };
  };
  /** Move points from the pool to a member's wallet; refused whole when the pool is short. */
  "group.credits.allocate": {
    auth: "jwt";
    params: {
      group_id: string;
      /** The member's email; a user id works too */
      user_id: string;
      points: number;
      note?: string;
    };
    result: {
      group_id: string;
      /** Email of the member */
      user: string;
      points: number;
      /** What the pool has left */
      balance: number;
    };
  };
  /** Allow models; it restricts the group's keys once enforce_model_allowlist is on. */
  "group.models.allow": {
    auth: "jwt";
    params: {
      group_id: string;
      model_ids: string[];
      /** Take the models off this list instead */
      remove?: boolean;
    };
    result: { allowed: string[]; denied: string[] };
  };
  /** The pool's balance and recent entries. */
  "group.credits.balance": {
    auth: "jwt";
    params: { group_id: string };
    result: {
      /** Points */
      balance: number;
      /** The newest 50, newest first */
      entries: {
        /** Counts the account's entries from 1, without gaps */
        seq: number;
        kind: "topup" | "allocation" | "settlement" | "return" | "debt" | "repayment" | "takeover";
        /** What the entry added, or took when negative */
        points: number;
        balance_after: number;
        /** The account on the other side of the movement */
        counterparty: { type: "user" | "group" | "debt" | "system"; id: string };
        /** Of a settlement or a debt: the request */
        request_id: string | null;
        note: string | null;
        /** RFC 3339 timestamp, UTC */
        created_at: string;
      }[];
      /** Points owed on this account: served, and covered neither by points nor by a quota */
      debt: number;
      /** Who owes them; nothing is admitted for these people on this account until it is paid */
      debts: { user_id: string; points: number }[];
      /** The newest 50 entries of the debts, newest first; their balance is minus what is owed */
      debt_entries: {
        /** Counts the account's entries from 1, without gaps */
        seq: number;
        kind: "topup" | "allocation" | "settlement" | "return" | "debt" | "repayment" | "takeover";
        /** What the entry added, or took when negative */
        points: number;
        balance_after: number;
        /** The account on the other side of the movement */
        counterparty: { type: "user" | "group" | "debt" | "system"; id: string };
        /** Of a settlement or a debt: the request */
        request_id: string | null;
        note: string | null;
        /** RFC 3339 timestamp, UTC */
        created_at: string;
        user_id: string;
      }[];
      group_id: string;
    };
  };
  /** Create a group; you become its owner. With the admin token it belongs to the platform. */
  "group.create": {
    auth: "jwt_or_admin_token";
    params: {
      name: string;
      description?: string;
      /** Your own id: a repeated call gets the group that the first one made */
      id?: string;
    };
    result: {
      id: string;
      name: string;
      description: string;
      /** Null for a platform administrator who is not a member */
      my_role: "owner" | "admin" | "member" | null;
      /** Active members */
      member_count: number;
      /** Group keys may use only the allowed models */
      enforce_model_allowlist: boolean;
      /** Requests a minute for all keys of the group together; null: no ceiling */
      rpm_ceiling: number | null;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
    };
  };
  /** Deny models to the group's keys; a denial wins over a permission. */
  "group.models.deny": {
    auth: "jwt";
    params: {
      group_id: string;
      model_ids: string[];
      /** Take the models off this list instead */
      remove?: boolean;
    };
    result: { allowed: string[]; denied: string[] };
  };
  /** A group with its active members. */
  "group.get": {
    auth: "jwt";
    params: { group_id: string };
    result: {
      id: string;
      name: string;
      description: string;
      /** Null for a platform administrator who is not a member */
      my_role: "owner" | "admin" | "member" | null;
      /** Active members */
      member_count: number;
      /** Group keys may use only the allowed models */
      enforce_model_allowlist: boolean;
      /** Requests a minute for all keys of the group together; null: no ceiling */
      rpm_ceiling: number | null;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
      members: {
        user_id: string;
        email: string;
        name: string;
        role: "admin" | "member";
        is_owner: boolean;
        cost_multiplier: number;
        is_active: boolean;
        /** RFC 3339 timestamp, UTC */
        joined_at: string;
      }[];
    };
  };
  /** Make an invitation; its token is shown once. */
  "group.invite.create": {
    auth: "jwt";
    params: {
      group_id: string;
      role?: "admin" | "member";
      /** Only the account with this email may accept */
      email?: string;
      max_uses?: number;
      ttl_secs?: number;
    };
    result: {
      id: string;
      group_id: string;
      /** It cannot be shown again */
      token: string;
      role: "admin" | "member";
      email: string | null;
      max_uses: number;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
      /** RFC 3339 timestamp, UTC */
      expires_at: string;
    };
  };
  /** Your groups, newest first. With the admin token: all groups. */
  "group.list": {
    auth: "jwt_or_admin_token";
    params: Record<string, never>;
    result: {
      id: string;
      name: string;
      description: string;
      /** Null for a platform administrator who is not a member */
      my_role: "owner" | "admin" | "member" | null;
      /** Active members */
      member_count: number;
      /** Group keys may use only the allowed models */
      enforce_model_allowlist: boolean;
      /** Requests a minute for all keys of the group together; null: no ceiling */
      rpm_ceiling: number | null;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
    }[];
  };
  /** Invitations of a group that can still be used, newest first. */
  "group.invite.list": {
    auth: "jwt";
    params: { group_id: string };
    result: {
      id: string;
      role: "admin" | "member";
      email: string | null;
      max_uses: number;
      uses: number;
      /** Name of who made it */
      created_by: string;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
      /** RFC 3339 timestamp, UTC */
      expires_at: string;
    }[];
  };
  /** The group's active members. */
  "group.members.list": {
    auth: "jwt";
    params: {
      group_id: string;
      /** Also those who were deactivated */
      include_inactive?: boolean;
    };
    result: {
      user_id: string;
      email: string;
      name: string;
      role: "admin" | "member";
      is_owner: boolean;
      cost_multiplier: number;
      is_active: boolean;
      /** RFC 3339 timestamp, UTC */
      joined_at: string;
    }[];
  };
  /** The models that the group's keys may and may not use. */
  "group.models.list": {
    auth: "jwt";
    params: { group_id: string };
    result: { allowed: string[]; denied: string[] };
  };
  /** Make an account by invitation, a member of the group from the start, and sign in. */
  "group.invite.register": {
    auth: "public";
    params: {
      token: string;
      password: string;
      /** Needed where the invitation is not for a particular address */
      email?: string;
      name?: string;
    };
    result: {
      access_token: string;
      refresh_token: string;
      token_type: "Bearer";
      /** Lifetime of the access token in seconds */
      expires_in: number;
      user: { id: string; email: string; name: string; is_admin: boolean };
    };
  };
  /** Delete a group; its keys become their makers' own, the pool's points go back to the platform. */
  "group.delete": {
    auth: "jwt";
    params: { group_id: string };
    result: { ok: true };
  };
  /** Remove a member; their group keys stop working at once. */
  "group.members.remove": {
    auth: "jwt";
    params: {
      group_id: string;
      /** The member's email; a user id works too */
      user_id: string;
    };
    result: { ok: true };
  };
  /** End an invitation that was not used up. */
  "group.invite.revoke": {
    auth: "jwt";
    params: { group_id: string; invitation_id: string };
    result: { ok: true };
  };
  /** Who invites to what, for the bearer of an invitation. */
  "group.invite.show": {
    auth: "public";
    params: { token: string };
    result: {
      group_name: string;
      group_description: string;
      invited_by: string;
      role: "admin" | "member";
      /** Only an account with this email may accept */
      email: string | null;
      /** RFC 3339 timestamp, UTC */
      expires_at: string;
    };
  };
  /** Issue points to a group's pool. */
  "group.credits.topup": {
    auth: "admin";
    params: { group_id: string; points: number; note?: string };
    result: { group_id: string; balance: number };
  };
  /** Change a group; what is left out stays. */
  "group.update": {
    auth: "jwt";
    params: {
      group_id: string;
      name?: string;
      description?: string;
      enforce_model_allowlist?: boolean;
      /** null clears it */
      rpm_ceiling?: number | null;
    };
    result: {
      id: string;
      name: string;
      description: string;
      /** Null for a platform administrator who is not a member */
      my_role: "owner" | "admin" | "member" | null;
      /** Active members */
      member_count: number;
      /** Group keys may use only the allowed models */
      enforce_model_allowlist: boolean;
      /** Requests a minute for all keys of the group together; null: no ceiling */
      rpm_ceiling: number | null;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
    };
  };
  /** Change a member; a deactivated one's group keys stop working at once. */
  "group.members.update": {
    auth: "jwt";
    params: {
      group_id: string;
      /** The member's email; a user id works too */
      user_id: string;
      role?: "admin" | "member";
      /** What a request costs the pool is multiplied by this; kept to 6 decimals. Below 1 only by a platform administrator */
      cost_multiplier?: number;
      is_active?: boolean;
    };
    result: {
      user_id: string;
      email: string;
      name: string;
      role: "admin" | "member";
      is_owner: boolean;
      cost_multiplier: number;
      is_active: boolean;
      /** RFC 3339 timestamp, UTC */
      joined_at: string;
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
      /** Id of the account that it belongs to */
      owner: string;
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
        /** The call that a tool's result is for */
        tool_call_id?: string;
        /** Why an answer is not whole: what the upstream said, or `stopped` */
        incomplete?: string;
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
      /** Id of the account that it belongs to */
      owner: string;
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
        /** The call that a tool's result is for */
        tool_call_id?: string;
        /** Why an answer is not whole: what the upstream said, or `stopped` */
        incomplete?: string;
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
      /** Id of the account that it belongs to */
      owner: string;
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
  /** Give one of your conversations another title. */
  "conversations.rename": {
    auth: "jwt";
    params: { conversation_id: string; title: string };
    result: {
      id: string;
      title: string;
      /** Id of the account that it belongs to */
      owner: string;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
      /** RFC 3339 timestamp, UTC */
      updated_at: string;
    };
  };
  /** Remove a message and all that follow it, to say it differently or to be answered again. */
  "conversations.rewind": {
    auth: "jwt";
    params: { conversation_id: string; message_id: string };
    result: {
      /** Messages that were removed */
      removed: number;
    };
  };
  /** Your requests, newest first; with `project` only those of the project's keys. */
  "usage.list": {
    auth: "jwt";
    params: {
      /** Default 50; values outside 1-200 are brought into it */
      limit?: number;
      /** Default 0 */
      offset?: number;
      /** Empty: all rows, as without it */
      project?: string;
    };
    result: {
      records: {
        id: string;
        model: string;
        backend: string;
        prompt_tokens: number;
        completion_tokens: number;
        total_tokens: number;
        /** USD; null when the model has no price */
        cost: number | null;
        /** RFC 3339 timestamp, UTC */
        created_at: string;
        ref_id: string | null;
        /** The key's prefix, or jwt-<user-uuid> for a signed-in person */
        api_key_id: string;
        /** Null for what was not done with a key */
        project: string | null;
        /** What points paid; null when it counts against the tier's quota */
        points: number | null;
        /** Whose points paid */
        account_type: "user" | "group" | null;
        /** The upstream reported no usage; the tokens are an estimate */
        estimated: boolean;
      }[];
      total: number;
      limit: number;
      offset: number;
      project: string | null;
    };
  };
  /** Sums of everyone's usage over a period, grouped if asked, with the rows if asked. */
  "usage.query": {
    auth: "admin";
    params: {
      /** Absent or blank: all rows */
      ref_ids?: string[];
      /** Inclusive: YYYY-MM-DD or an RFC 3339 timestamp */
      since?: string;
      /** Exclusive instant, or a YYYY-MM-DD that is covered whole */
      until?: string;
      group_by?: "model" | "backend" | "ref" | "day";
      /** Rows a page, 1-500; default 100 */
      limit?: number;
      offset?: number;
      include_records?: boolean;
    };
    result: {
      totals: {
        requests: number;
        prompt_tokens: number;
        completion_tokens: number;
        total_tokens: number;
        /** Sum of the costs; rows without one add nothing */
        cost_usd: number;
      };
      groups?: {
        requests: number;
        prompt_tokens: number;
        completion_tokens: number;
        total_tokens: number;
        /** Sum of the costs; rows without one add nothing */
        cost_usd: number;
        key: string | null;
      }[];
      /** Present when there are more than 10000 groups */
      groups_truncated?: true;
      records?: {
        id: string;
        ref_id: string | null;
        api_key_id: string;
        model: string;
        backend: string;
        prompt_tokens: number;
        completion_tokens: number;
        total_tokens: number;
        cost: number | null;
        /** RFC 3339 timestamp, UTC */
        created_at: string;
      }[];
      records_total?: number;
      limit?: number;
      offset?: number;
    };
  };
  /** What video models cost; one without a row costs 0.005 USD a second. */
  "billing.video.pricing.get": {
    auth: "jwt";
    params: Record<string, never>;
    result: {
      pricing: {
        model: string;
        mode: "per_call" | "per_second_resolution" | "per_frame";
        base_price: number;
        price_per_second: number;
        price_per_frame: number;
        resolution_coeff: Record<string, number>;
        currency: string;
        enabled: boolean;
      }[];
    };
  };
  /** What each model that can be called now costs, and where that price comes from. */
  "billing.prices.list": {
    auth: "admin";
    params: Record<string, never>;
    result: {
      model: string;
      /** Per million tokens; null: no price is known */
      input_usd: number | null;
      output_usd: number | null;
      /** own: set by an administrator */
      source: "own" | "list" | null;
    }[];
  };
  /** Your tier, what you used this month (UTC) and what is left of it. */
  "billing.plan": {
    auth: "jwt";
    params: Record<string, never>;
    result: {
      tiers: {
        name: string;
        /** Null: unlimited */
        monthly_usd_quota: number | null;
        /** Null: unlimited */
        monthly_token_quota: number | null;
        /** Requests a minute that each key may make */
        rpm: number;
      }[];
      current_tier: string;
      usage: {
        cost_usd: number;
        tokens: number;
        requests: number;
        /** The part of cost_usd that points did not pay */
        quota_cost_usd: number;
        /** The part of tokens that points did not pay */
        quota_tokens: number;
      };
      remaining: {
        /** Null: unlimited */
        cost_usd: number | null;
        /** Null: unlimited */
        tokens: number | null;
      };
      quota_exceeded: boolean;
      points_balance: number;
      /** Owed on the wallet: while it is not 0, nothing is admitted on points or quota */
      debt_points: number;
      points_per_usd: number;
    };
  };
  /** Forget a price that an administrator set; the built-in one is in force again, if there is one. */
  "billing.prices.remove": {
    auth: "admin";
    params: { model: string };
    result: { removed: boolean };
  };
  /** Put an account on a tier; its limits change at once. */
  "billing.plan.set": {
    auth: "admin_token";
    params: { user_email: string; tier: string };
    result: { ok: true };
  };
  /** Set what a model costs; it goes before the built-in prices and the pricing file. */
  "billing.prices.set": {
    auth: "admin";
    params: {
      model: string;
      /** Per million tokens of the prompt */
      input_usd: number;
      /** Per million tokens of the answer */
      output_usd: number;
    };
    result: { ok: true };
  };
  /** Change the limits of a tier; they are in force at once. */
  "billing.tiers.set": {
    auth: "admin";
    params: {
      name: string;
      /** Null: unlimited */
      monthly_usd_quota: number | null;
      /** Null: unlimited */
      monthly_token_quota: number | null;
      /** Requests a minute that each key may make */
      rpm: number;
    };
    result: { ok: true };
  };
  /** Set a video model's price, as a signed-in administrator. */
  "billing.prices.video.set": {
    auth: "admin";
    params: {
      model: string;
      mode?: "per_call" | "per_second_resolution" | "per_frame";
      base_price?: number;
      price_per_second?: number;
      price_per_frame?: number;
      resolution_coeff?: Record<string, number>;
      /** Another one than USD needs a rate in the pricing file (usd_per); until then jobs are refused */
      currency?: string;
      /** False: the row is kept but not used, and the model costs what one without a row costs, 0.005 USD a second. It does not switch the model off */
      enabled?: boolean;
    };
    result: { ok: true };
  };
  /** Set a video model's price; replaces the model's row. */
  "billing.video.pricing.set": {
    auth: "admin_token";
    params: {
      model: string;
      mode?: "per_call" | "per_second_resolution" | "per_frame";
      base_price?: number;
      price_per_second?: number;
      price_per_frame?: number;
      resolution_coeff?: Record<string, number>;
      /** Another one than USD needs a rate in the pricing file (usd_per); until then jobs are refused */
      currency?: string;
      /** False: the row is kept but not used, and the model costs what one without a row costs, 0.005 USD a second. It does not switch the model off */
      enabled?: boolean;
    };
    result: { ok: true };
  };
  /** What is remembered about you, newest first. */
  "memory.list": {
    auth: "jwt";
    params: { limit?: number; offset?: number };
    result: {
      items: {
        /** For memory.delete */
        node_id: string;
        text: string;
      }[];
      total: number;
    };
  };
  /** Forget one thing that is remembered about you. */
  "memory.delete": {
    auth: "jwt";
    params: {
      /** Id of the remembered fact, as memory.list and the events of memory.status have it */
      node_id: string;
    };
    result: {
      /** False when there was no such fact of yours */
      deleted: boolean;
    };
  };
  /** Whether long-term memory is on, and what it did for you lately. */
  "memory.status": {
    auth: "jwt";
    params: Record<string, never>;
    result: {
      /** A memory service is configured */
      enabled: boolean;
      /** Finished turns are remembered */
      writeback: boolean;
      /** Newest first */
      events: {
        /** RFC 3339 timestamp, UTC */
        at: string;
        kind: "recall" | "writeback" | "delete";
        outcome: "ok" | "failed";
        /** Facts found, written or deleted */
        count: number;
        /** Their ids, for memory.delete */
        node_ids: string[];
        duration_ms: number;
        /** Why it failed */
        detail: string | null;
      }[];
    };
  };
  /** Register a backend; its models can be called as soon as it answers a probe. */
  "backends.add": {
    auth: "admin";
    params: {
      /** A kind, or an engine's name such as vllm */
      type?: string;
      url?: string;
      /** Sent as bearer on upstream calls */
      api_key?: string | null;
      /** Provider hint; the same name replaces */
      name?: string;
      models?: string[];
      capabilities?: ("chat" | "embeddings" | "video" | "realtime" | "invoke")[];
      /** Calls that it takes at once, e.g. the slots of llama.cpp; more wait in a bounded queue */
      concurrency?: number;
    };
    result: { name: string };
  };
  /** Delete a model route. */
  "routes.delete": {
    auth: "admin";
    params: { name: string };
    result: { ok: true };
  };
  /** Other names of models, sorted. */
  "aliases.list": {
    auth: "admin";
    params: Record<string, never>;
    result: { alias: string; target: string }[];
  };
  /** Backends with their health, circuits and models. */
  "backends.list": {
    auth: "admin";
    params: Record<string, never>;
    result: {
      backends: {
        /** backend_<index>:<kind> */
        label: string;
        state: "Healthy" | "Degraded" | "Unhealthy";
        name: string;
        type: string;
        url: string;
        models: number;
        requests: number;
        /** Calls under way on this instance */
        in_flight: number;
        concurrency: number | null;
        circuit: {
          state: "closed" | "open" | "half_open";
          consecutive_failures: number;
          cause: string | null;
          retry_at: string | null;
        };
        last_error: string | null;
        probed_at: string | null;
        /** Usage that the model cannot have had, as this backend reported it; the newest case */
        implausible_usage: { count: number; problem: string; request_id: string; at: string } | null;
        enabled: boolean;
        /** False: it was not registered by hand, such as a model on a node */
        editable: boolean;
        has_key: boolean;
        /** As registered, beside those that it lists itself */
        listed_models: string[];
        /** What it serves, as far as it was asked */
        model_ids: string[];
      }[];
      /** Callable now */
      models: string[];
    };
  };
  /** Model routes: names that several targets serve. */
  "routes.list": {
    auth: "admin";
    params: Record<string, never>;
    result: {
      /** The model id that clients call */
      name: string;
      targets: {
        /** As a backend lists it; aliases and other routes are not followed */
        model: string;
        /** Only this backend, or backends of this kind */
        backend?: string | null;
        /** Lower ones are tried first */
        order: number;
        /** Share of the calls among those of the same order */
        weight: number;
      }[];
      /** A target that has not begun to answer by then gives way to the next */
      begin_within_seconds?: number | null;
    }[];
  };
  /** Probe a backend now instead of at the next minute. */
  "backends.probe": {
    auth: "admin";
    params: { name: string };
    result: { ok: true };
  };
  /** Remove an alias; also succeeds when there is none. */
  "aliases.remove": {
    auth: "admin";
    params: { alias: string };
    result: { ok: true };
  };
  /** Remove a backend; nothing is sent to it any more. */
  "backends.remove": {
    auth: "admin";
    params: { name: string };
    result: { removed: boolean };
  };
  /** Let a model be called by another name; in memory only. */
  "aliases.set": {
    auth: "admin";
    params: { alias: string; target: string };
    result: { ok: true };
  };
  /** Let several targets serve one name, with order and weights; replaces the route of that name. */
  "routes.set": {
    auth: "admin";
    params: {
      /** The model id that clients call */
      name: string;
      targets: {
        /** As a backend lists it; aliases and other routes are not followed */
        model: string;
        /** Only this backend, or backends of this kind */
        backend?: string | null;
        /** Lower ones are tried first */
        order?: number;
        /** Share of the calls among those of the same order */
        weight?: number;
      }[];
      /** A target that has not begun to answer by then gives way to the next */
      begin_within_seconds?: number | null;
    };
    result: { ok: true };
  };
  /** Ask a server that is not registered whether it answers, and for its models; spends no tokens. */
  "backends.test": {
    auth: "admin";
    params: {
      /** A kind, or an engine's name such as vllm */
      type?: string;
      url?: string;
      /** Sent as bearer on upstream calls */
      api_key?: string | null;
      /** Provider hint; the same name replaces */
      name?: string;
      models?: string[];
      capabilities?: ("chat" | "embeddings" | "video" | "realtime" | "invoke")[];
      /** Calls that it takes at once, e.g. the slots of llama.cpp; more wait in a bounded queue */
      concurrency?: number;
    };
    result: {
      ok: boolean;
      /** Why not */
      detail: string | null;
      latency_ms: number | null;
      /** The first 1,000 */
      models: string[];
    };
  };
  /** What backends can be registered, and what a form asks for. */
  "backends.types": {
    auth: "jwt";
    params: Record<string, never>;
    result: {
      default_type: string;
      types: {
        type: string;
        kind: string;
        label: string;
        fields: {
          /** Of `POST /api/admin/backends` */
          name: "url" | "name" | "api_key" | "models";
          label: string;
          input: "text" | "password" | "list";
          required: boolean;
          placeholder?: string;
          hint: string;
        }[];
      }[];
    };
  };
  /** Change a backend; what is left out stays. A disabled one gets no requests. */
  "backends.update": {
    auth: "admin";
    params: {
      /** A kind, or an engine's name such as vllm */
      type?: string;
      url?: string;
      /** Sent as bearer on upstream calls */
      api_key?: string | null;
      models?: string[];
      capabilities?: ("chat" | "embeddings" | "video" | "realtime" | "invoke")[];
      /** Calls that it takes at once, e.g. the slots of llama.cpp; more wait in a bounded queue */
      concurrency?: number;
      name: string;
      enabled?: boolean;
    };
    result: { name: string };
  };
  /** Call a method of the engine that serves a model, and return its raw result. */
  "engine.invoke": {
    auth: "admin";
    params: { model: string; method: string; params?: Record<string, unknown> };
    result: unknown;
  };
  /** Send a chat turn; its answer arrives as chat.stream notifications, one token each. */
  "chat.send": {
    auth: "jwt";
    params: {
      model: string;
      messages: {
        role: "user" | "assistant" | "system" | "developer" | "tool";
        content?: string | unknown[] | null;
        images?: unknown[];
        tool_calls?: unknown[];
        [field: string]: unknown;
      }[];
      temperature?: number;
      max_tokens?: number;
      /** Its stored messages go before these, and the turn is added to it */
      conversation_id?: string;
      /** False: nothing is recalled for this turn */
      memory?: boolean;
      /** An object, merged into what is sent upstream */
      extra?: unknown;
      tools?: unknown[];
      provider?: string;
    };
    result: {
      /** Session of GET /api/rpc/events */
      stream_id: string;
      memory: "enabled" | "disabled" | "offline";
      /** What the answer was limited to because points and quota pay no more; absent when nothing was */
      max_tokens?: number;
    };
  };
  /** Stop an answer of chat.send; leaving its notifications does not. */
  "chat.stop": {
    auth: "jwt";
    params: {
      /** As chat.send returned it */
      stream_id: string;
    };
    result: { ok: true };
  };
  /** Cancel one of your video jobs; nothing is charged. */
  "video.cancel": {
    auth: "jwt";
    params: { job_id: string };
    result: { ok: true };
  };
  /** Submit a video task; its progress arrives on stream_id and on the job id. */
  "video.create": {
    auth: "jwt";
    params: {
      model: string;
      prompt: string;
      negative_prompt?: string;
      /** First and last frame; PNG, JPEG or WebP, up to 10 MiB each */
      images?: { data_base64: string; mime_type: string }[];
      duration_seconds?: number;
      width?: number;
      height?: number;
      /** Name or kind of the backend to use */
      provider?: string;
      /** Backend-specific fields such as seed, steps, cfg */
      extra?: Record<string, unknown>;
    };
    result: { job_id: string; stream_id: string };
  };
  /** One of your video jobs. */
  "video.get": {
    auth: "jwt";
    params: { job_id: string };
    result: {
      id: string;
      object: "video.generation";
      model: string;
      status: "queued" | "running" | "done" | "failed" | "cancelled";
      /** 0 to 100 */
      progress: number;
      result: {
        url: string;
        mime_type: string;
        width?: number;
        height?: number;
        duration_seconds?: number;
        expires_at?: string;
      } | null;
      error: string | null;
      /** USD; 0 until the job is done */
      cost: number;
      /** Unix seconds */
      created_at: number;
      /** What was asked for and cannot be sent to this backend */
      warnings?: string[];
      job_id: string;
    };
  };
  /** Your video jobs, newest first. */
  "video.list": {
    auth: "jwt";
    params: {
      /** Clamped to 1-100 */
      limit?: number;
    };
    result: {
      jobs: {
        id: string;
        object: "video.generation";
        model: string;
        status: "queued" | "running" | "done" | "failed" | "cancelled";
        /** 0 to 100 */
        progress: number;
        result: {
          url: string;
          mime_type: string;
          width?: number;
          height?: number;
          duration_seconds?: number;
          expires_at?: string;
        } | null;
        error: string | null;
        /** USD; 0 until the job is done */
        cost: number;
        /** Unix seconds */
        created_at: number;
        /** What was asked for and cannot be sent to this backend */
        warnings?: string[];
        job_id: string;
      }[];
    };
  };
  /** Queue one client event for the upstream; only the session's owner may. */
  "realtime.event": {
    auth: "jwt";
    params: {
      session_id: string;
      /** Audio is base64 PCM16, 16 kHz to the model and 24 kHz from it, and passes untouched */
      event: {
        type: "session.update" | "input_audio_buffer.append" | "input_audio_buffer.commit" | "input_audio_buffer.clear" | "input_image_buffer.append" | "response.create" | "response.cancel" | "session.stop";
        [field: string]: unknown;
      };
    };
    result: { ok: true };
  };
  /** Open a voice session with a model; its events arrive on stream_session. */
  "realtime.start": {
    auth: "jwt";
    params: {
      model: string;
      /** Session settings in the upstream's own words, sent as session.update */
      config?: Record<string, unknown>;
      /** Transcripts are stored there as assistant messages */
      conversation_id?: string;
      /** Attribution reference; usage rows are then written even with zero tokens */
      ref_id?: string;
    };
    result: {
      session_id: string;
      /** Subscribe at /api/rpc/events?session=<this> */
      stream_session: string;
    };
  };
  /** End one of your voice sessions. */
  "realtime.stop": {
    auth: "jwt";
    params: { session_id: string };
    result: { removed: boolean };
  };
  /** Deploy a model on a node, by default on the least-loaded one that is online. */
  "agents.deploy": {
    auth: "admin";
    params: {
      model_id: string;
      /** Empty or missing: the least-loaded node */
      agent_id?: string | null;
    };
    result: { ok: true; stream_id: string };
  };
  /** Remove a node: its token is void and its connection ends at once. */
  "agents.deregister": {
    auth: "admin";
    params: { agent_id: string };
    result: { ok: true };
  };
  /** Registered agent nodes, and how they stand. */
  "agents.list": {
    auth: "admin";
    params: Record<string, never>;
    result: {
      agent_id: string;
      name: string;
      version: string;
      /** As the node last gave it; null before its first connection */
      host: string | null;
      /** Whether a heartbeat came within the last 30 seconds */
      online: boolean;
      /** Empty while offline, and where there is no GPU */
      gpus: {
        index: number;
        name: string;
        memory_total_mb: number | null;
        memory_used_mb: number | null;
        utilization: number | null;
        uuid?: string;
        memory_free_mb?: number | null;
        temperature_c?: number | null;
        power_w?: number | null;
        driver_version?: string | null;
      }[];
      /** Percent, mean over the GPUs that report it */
      gpu_utilization: number | null;
      models: {
        model_id: string;
        status: "queued" | "downloading" | "loading" | "ready" | "failed" | "stopped";
        progress: number;
        message?: string;
        engine?: string;
        port?: number;
        /** The backend that routes to it; null while it is not ready */
        backend: string | null;
        /** How this instance reaches it: at the node's host and port, or through the node's connection */
        via: "direct" | "tunnel" | null;
      }[];
      heartbeat_at: string | null;
      /** Null while offline */
      connected_at: string | null;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
    }[];
  };
  /** Register a node; its token is shown once. */
  "agents.register": {
    auth: "admin";
    params: { machine_name: string; version: string };
    result: {
      agent_id: string;
      /** For `npm run agent -- --token`; it cannot be shown again */
      token: string;
    };
  };
  /** One node: GPUs, models, utilisation, signs of life. */
  "agents.status": {
    auth: "admin";
    params: { agent_id: string };
    result: {
      agent_id: string;
      name: string;
      version: string;
      /** As the node last gave it; null before its first connection */
      host: string | null;
      /** Whether a heartbeat came within the last 30 seconds */
      online: boolean;
      /** Empty while offline, and where there is no GPU */
      gpus: {
        index: number;
        name: string;
        memory_total_mb: number | null;
        memory_used_mb: number | null;
        utilization: number | null;
        uuid?: string;
        memory_free_mb?: number | null;
        temperature_c?: number | null;
        power_w?: number | null;
        driver_version?: string | null;
      }[];
      /** Percent, mean over the GPUs that report it */
      gpu_utilization: number | null;
      models: {
        model_id: string;
        status: "queued" | "downloading" | "loading" | "ready" | "failed" | "stopped";
        progress: number;
        message?: string;
        engine?: string;
        port?: number;
        /** The backend that routes to it; null while it is not ready */
        backend: string | null;
        /** How this instance reaches it: at the node's host and port, or through the node's connection */
        via: "direct" | "tunnel" | null;
      }[];
      heartbeat_at: string | null;
      /** Null while offline */
      connected_at: string | null;
      /** RFC 3339 timestamp, UTC */
      created_at: string;
    };
  };
  /** Stop a model on a node; its backend is gone when the answer comes. */
  "agents.stop": {
    auth: "admin";
    params: { agent_id: string; model_id: string };
    result: { ok: true; stream_id: null };
  };
  /** This instance's last hour: outcomes by minute, first tokens, probes of backends, latest failures. */
  "system.activity": {
    auth: "admin";
    params: Record<string, never>;
    result: {
      /** At most 60, oldest first; the last one is under way */
      minutes: {
        /** RFC 3339 timestamp, UTC */
        at: string;
        ok: number;
        client_error: number;
        upstream_error: number;
        gateway_error: number;
        client_left: number;
      }[];
      first_token: {
        /** Streamed answers in the window */
        count: number;
        p50_ms: number | null;
        p95_ms: number | null;
        models: {
          /** Streamed answers in the window */
          count: number;
          p50_ms: number | null;
          p95_ms: number | null;
          model: string;
        }[];
      };
      backends_total: number;
      /** Those in trouble first */
      backends: {
        name: string;
        kind: string;
        state: "Healthy" | "Degraded" | "Unhealthy";
        circuit: "closed" | "open" | "half_open";
        /** Why the state is not Healthy */
        detail: string | null;
        probes: {
          /** RFC 3339 timestamp, UTC */
          at: string;
          state: "Healthy" | "Degraded" | "Unhealthy";
          latency_ms: number | null;
          detail: string | null;
        }[];
      }[];
      /** Newest first */
      failures: {
        /** RFC 3339 timestamp, UTC */
        at: string;
        request_id: string;
        /** How often the same failure was seen */
        times: number;
        /** HTTP status of a refusal; null when an upstream failed */
        status: number | null;
        code: string;
        model: string | null;
        backend: string | null;
        message: string;
      }[];
    };
  };
  /** Register one of the model servers that backends.detect looks for. */
  "backends.adopt": {
    auth: "admin";
    params: {
      /** An id from backends.detect */
      server: string;
    };
    result: {
      /** Name of the backend */
      name: string;
    };
  };
  /** Look for well-known model servers on the service's own machine. */
  "backends.detect": {
    auth: "admin";
    params: Record<string, never>;
    result: {
      servers: {
        /** For backends.adopt */
        id: string;
        label: string;
        url: string;
        found: boolean;
        /** The first 50 */
        models: string[];
        models_total: number;
        /** Why it counts as not found */
        detail: string | null;
        /** Name of the backend that is registered at this address */
        registered_as: string | null;
      }[];
    };
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
  "auth.link.accept": "public",
  "users.create": "admin",
  "auth.sessions.end": "jwt",
  "users.invite": "admin",
  "users.links.list": "admin",
  "auth.sessions.list": "jwt",
  "users.list": "admin",
  "auth.login": "public",
  "auth.me": "jwt",
  "auth.refresh": "public",
  "auth.register": "public",
  "users.password.reset": "admin",
  "users.links.revoke": "admin",
  "auth.password.set": "jwt",
  "auth.link.show": "public",
  "users.update": "admin",
  "ledger.self": "jwt_or_admin_token",
  "group.invite.accept": "jwt",
  "group.members.add": "jwt",
  "group.credits.allocate": "jwt",
  "group.models.allow": "jwt",
  "group.credits.balance": "jwt",
  "group.create": "jwt_or_admin_token",
  "group.models.deny": "jwt",
  "group.get": "jwt",
  "group.invite.create": "jwt",
  "group.list": "jwt_or_admin_token",
  "group.invite.list": "jwt",
  "group.members.list": "jwt",
  "group.models.list": "jwt",
  "group.invite.register": "public",
  "group.delete": "jwt",
  "group.members.remove": "jwt",
  "group.invite.revoke": "jwt",
  "group.invite.show": "public",
  "group.credits.topup": "admin",
  "group.update": "jwt",
  "group.members.update": "jwt",
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
  "conversations.rename": "jwt",
  "conversations.rewind": "jwt",
  "usage.list": "jwt",
  "usage.query": "admin",
  "billing.video.pricing.get": "jwt",
  "billing.prices.list": "admin",
  "billing.plan": "jwt",
  "billing.prices.remove": "admin",
  "billing.plan.set": "admin_token",
  "billing.prices.set": "admin",
  "billing.tiers.set": "admin",
  "billing.prices.video.set": "admin",
  "billing.video.pricing.set": "admin_token",
  "memory.list": "jwt",
  "memory.delete": "jwt",
  "memory.status": "jwt",
  "backends.add": "admin",
  "routes.delete": "admin",
  "aliases.list": "admin",
  "backends.list": "admin",
  "routes.list": "admin",
  "backends.probe": "admin",
  "aliases.remove": "admin",
  "backends.remove": "admin",
  "aliases.set": "admin",
  "routes.set": "admin",
  "backends.test": "admin",
  "backends.types": "jwt",
  "backends.update": "admin",
  "engine.invoke": "admin",
  "chat.send": "jwt",
  "chat.stop": "jwt",
  "video.cancel": "jwt",
  "video.create": "jwt",
  "video.get": "jwt",
  "video.list": "jwt",
  "realtime.event": "jwt",
  "realtime.start": "jwt",
  "realtime.stop": "jwt",
  "agents.deploy": "admin",
  "agents.deregister": "admin",
  "agents.list": "admin",
  "agents.register": "admin",
  "agents.status": "admin",
  "agents.stop": "admin",
  "system.activity": "admin",
  "backends.adopt": "admin",
  "backends.detect": "admin",
  "system.probe": "anonymous_socket",
  "system.status": "public",
};
