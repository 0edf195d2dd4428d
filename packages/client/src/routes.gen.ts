// Made by scripts/gen.ts from the definitions; `npm run gen` writes it anew.

/** Body and answer of every route, by its method and path. */
export interface Routes {
  /** Sums of usage over a period, grouped if asked, with the rows if asked. */
  "POST /api/admin/usage/query": {
    auth: "admin_token";
    body: {
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
    answer: {
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
  /** What the models that can be called now cost; null where no price is known. */
  "GET /api/prices": {
    auth: "public";
    answer: { prices: { model: string; input: number | null; output: number | null }[] };
  };
  /** Let a model be called by another name; in memory only. */
  "POST /api/admin/aliases": {
    auth: "admin_token";
    body: { alias: string; target: string };
    answer: { status: "ok"; message: string };
  };
  /** All aliases, sorted. */
  "GET /api/admin/aliases": {
    auth: "admin_token";
    answer: { alias: string; target: string }[];
  };
  /** Backends with their health and circuits, and every routable model id. */
  "GET /api/admin/backends": {
    auth: "admin_token";
    answer: {
      backends: {
        /** Healthy ones */
        count: number;
        health: {
          /** backend_<index>:<kind> */
          label: string;
          state: "Healthy" | "Degraded" | "Unhealthy";
          name: string;
          type: string;
          url: string;
          models: number;
          requests: number;
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
        }[];
      };
      models: string[];
    };
  };
  /** Register a backend, or replace the one of the same name. */
  "POST /api/admin/backends": {
    auth: "admin_token";
    body: {
      /** A kind, or an engine's name such as vllm */
      type?: string;
      url?: string;
      /** Sent as bearer on upstream calls */
      api_key?: string | null;
      /** Provider hint; the same name replaces */
      name?: string;
      models?: string[];
      capabilities?: ("chat" | "embeddings" | "video" | "realtime" | "invoke")[];
      /** Legacy; read by no backend */
      workflow?: Record<string, unknown> | null;
    };
    answer: { status: "ok"; message: string; name: string; index: number };
  };
  /** Remove an alias; also succeeds when there is none. */
  "DELETE /api/admin/aliases": {
    auth: "admin_token";
    body: { alias: string };
    answer: { status: "ok"; message: string };
  };
  /** Remove the backend with this registration index. */
  "DELETE /api/admin/backends": {
    auth: "admin_token";
    body: { index: number };
    answer: { status: "ok"; message: string };
  };
  /** One chat turn, as a whole or as an event stream that ends with [DONE]. */
  "POST /v1/chat/completions": {
    auth: "api_key";
    body: {
      /** Id from GET /v1/models, or an alias */
      model: string;
      messages: {
        role: string;
        content?: string | unknown[] | null;
        images?: unknown[];
        tool_calls?: unknown[];
        [field: string]: unknown;
      }[];
      /** True: the answer is an event stream */
      stream?: boolean;
      temperature?: number;
      max_tokens?: number;
      /** One of your conversations; the turn is stored in it */
      conversation_id?: string;
      /** False: nothing is recalled for this request */
      memory?: boolean;
      /** Merged into what is sent upstream */
      extra?: Record<string, unknown>;
      tools?: unknown[];
      /** Only this backend, or backends of this kind */
      provider?: string;
      [field: string]: unknown;
    };
    answer: {
      id: string;
      object: "chat.completion";
      created: number;
      model: string;
      choices: {
        index: number;
        message: {
          role: string;
          content: string | null;
          tool_calls?: {
            id?: string;
            index?: number;
            type?: string;
            function?: { name?: string; arguments?: string; [field: string]: unknown };
            [field: string]: unknown;
          }[];
          [field: string]: unknown;
        };
        finish_reason: string;
        [field: string]: unknown;
      }[];
      usage: { prompt_tokens: number; completion_tokens: number; total_tokens: number };
      [field: string]: unknown;
    };
    event: {
      id: string;
      object: "chat.completion.chunk";
      created: number;
      model: string;
      choices: {
        index: number;
        delta: {
          role?: string;
          content?: string | null;
          reasoning_content?: string;
          tool_calls?: {
            id?: string;
            index?: number;
            type?: string;
            function?: { name?: string; arguments?: string; [field: string]: unknown };
            [field: string]: unknown;
          }[];
          [field: string]: unknown;
        };
        finish_reason: string | null;
        [field: string]: unknown;
      }[];
      usage?: { prompt_tokens: number; completion_tokens: number; total_tokens: number } | null;
      [field: string]: unknown;
    };
  };
  /** A text that goes on from a prompt, as a whole or as an event stream that ends with [DONE]. */
  "POST /v1/completions": {
    auth: "api_key";
    body: {
      /** Id from GET /v1/models, or an alias */
      model: string;
      /** Text, texts, or token numbers */
      prompt: string | unknown[];
      /** What comes after the text that is asked for */
      suffix?: string | null;
      max_tokens?: number | null;
      n?: number | null;
      /** True: the answer is an event stream */
      stream?: boolean | null;
      /** Only this backend, or backends of this kind */
      provider?: string;
      [field: string]: unknown;
    };
    answer: {
      id: string;
      object: "text_completion";
      created: number;
      model: string;
      choices: {
        index: number;
        text: string;
        finish_reason: string | null;
        logprobs?: Record<string, unknown> | null;
        [field: string]: unknown;
      }[];
      usage?: { prompt_tokens: number; completion_tokens: number; total_tokens: number } | null;
      [field: string]: unknown;
    };
    event: {
      id: string;
      object: "text_completion";
      created: number;
      model: string;
      choices: {
        index: number;
        text: string;
        finish_reason: string | null;
        logprobs?: Record<string, unknown> | null;
        [field: string]: unknown;
      }[];
      usage?: { prompt_tokens: number; completion_tokens: number; total_tokens: number } | null;
      [field: string]: unknown;
    };
  };
  /** OpenAI Responses API over the chat path, streaming or not; the next may go on from it. */
  "POST /v1/responses": {
    auth: "api_key";
    body: {
      model: string;
      input: string | Record<string, unknown>[];
      instructions?: string | null;
      /** One of yours of the last 30 days, to go on from */
      previous_response_id?: string | null;
      /** False: nothing can go on from this one */
      store?: boolean | null;
      stream?: boolean | null;
      max_output_tokens?: number | null;
      tools?: { type: string; [field: string]: unknown }[] | null;
      [field: string]: unknown;
    };
    answer: { id: string; object: "response"; status: string; [field: string]: unknown };
  };
  /** Anthropic Messages API over the chat path, streaming or not. */
  "POST /v1/messages": {
    auth: "api_key";
    body: {
      model: string;
      messages: { role: string; content: string | { type: string; [field: string]: unknown }[] }[];
      system?: string | Record<string, unknown>[] | null;
      tools?: { name: string; [field: string]: unknown }[] | null;
      max_tokens: number;
      stream?: boolean | null;
      [field: string]: unknown;
    };
    answer: { id: string; type: "message"; content: Record<string, unknown>[]; [field: string]: unknown };
  };
  /** Prompt tokens of a Messages request, estimated; costs nothing. */
  "POST /v1/messages/count_tokens": {
    auth: "api_key";
    body: {
      model: string;
      messages: { role: string; content: string | { type: string; [field: string]: unknown }[] }[];
      system?: string | Record<string, unknown>[] | null;
      tools?: { name: string; [field: string]: unknown }[] | null;
      [field: string]: unknown;
    };
    answer: { input_tokens: number };
  };
  /** One chat turn as Ollama's API has it: lines of JSON, or one object. */
  "POST /api/chat": {
    auth: "api_key";
    body: {
      model: string;
      /** False: one object; otherwise a line for each piece */
      stream?: boolean | null;
      options?: { num_predict?: number | null; [field: string]: unknown } | null;
      format?: string | Record<string, unknown> | null;
      think?: boolean | string | null;
      messages?: { role: string; content?: string | null; [field: string]: unknown }[] | null;
      tools?: Record<string, unknown>[] | null;
      [field: string]: unknown;
    };
    answer: {
      model: string;
      created_at: string;
      done: boolean;
      done_reason?: string;
      prompt_eval_count?: number;
      eval_count?: number;
      message: { role: string; content: string; [field: string]: unknown };
      [field: string]: unknown;
    };
  };
  /** An answer to a prompt, or what fills the gap before `suffix`, as Ollama's API has it. */
  "POST /api/generate": {
    auth: "api_key";
    body: {
      model: string;
      /** False: one object; otherwise a line for each piece */
      stream?: boolean | null;
      options?: { num_predict?: number | null; [field: string]: unknown } | null;
      format?: string | Record<string, unknown> | null;
      think?: boolean | string | null;
      prompt?: string | null;
      suffix?: string | null;
      system?: string | null;
      /** True: the prompt goes to the model as it is */
      raw?: boolean | null;
      images?: string[] | null;
      [field: string]: unknown;
    };
    answer: {
      model: string;
      created_at: string;
      done: boolean;
      done_reason?: string;
      prompt_eval_count?: number;
      eval_count?: number;
      response: string;
      [field: string]: unknown;
    };
  };
  /** Vectors of texts, as Ollama's API has it. */
  "POST /api/embed": {
    auth: "api_key";
    body: { model: string; input: string | string[]; dimensions?: number; [field: string]: unknown };
    answer: {
      model: string;
      embeddings: number[][];
      total_duration: number;
      load_duration: number;
      prompt_eval_count: number;
    };
  };
  /** One of these models: what it can do and how much it reads. */
  "POST /api/show": {
    auth: "api_key";
    body: { model?: string; name?: string; [field: string]: unknown };
    answer: {
      modelfile: string;
      parameters: string;
      template: string;
      details: {
        parent_model: string;
        format: string;
        family: string;
        families: string[];
        parameter_size: string;
        quantization_level: string;
      };
      model_info: Record<string, unknown>;
      capabilities: string[];
      modified_at: string;
    };
  };
  /** Models that can be called now, as Ollama's API lists them. */
  "GET /api/tags": {
    auth: "public";
    answer: {
      models: {
        name: string;
        model: string;
        modified_at: string;
        size: number;
        digest: string;
        capabilities: string[];
        details: {
          parent_model: string;
          format: string;
          family: string;
          families: string[];
          parameter_size: string;
          quantization_level: string;
        };
      }[];
    };
  };
  /** The gateway's version, where Ollama's clients look for a version. */
  "GET /api/version": {
    auth: "public";
    answer: { version: string };
  };
  /** Vectors of texts, as numbers or as base64 of little-endian float32. */
  "POST /v1/embeddings": {
    auth: "api_key";
    body: {
      model: string;
      input: string | unknown[];
      encoding_format?: "float" | "base64";
      dimensions?: number;
      provider?: string;
      [field: string]: unknown;
    };
    answer: {
      object: "list";
      data: { object: "embedding"; index: number; embedding: number[] | string }[];
      model: string;
      usage: { prompt_tokens: number; completion_tokens: number; total_tokens: number };
      [field: string]: unknown;
    };
  };
  /** One of the models that are listed; a slash in its id is written %2F. */
  "GET /v1/models/{model}": {
    auth: "public";
    answer: {
      id: string;
      object: "model";
      created: number;
      owned_by: string;
      /** What its server says, e.g. the context length */
      meta?: Record<string, unknown>;
    };
  };
  /** Models that can be called now, and well-known ones that a backend may serve. */
  "GET /v1/models": {
    auth: "public";
    answer: {
      object: "list";
      data: {
        id: string;
        object: "model";
        created: number;
        owned_by: string;
        /** What its server says, e.g. the context length */
        meta?: Record<string, unknown>;
      }[];
    };
  };
  /** Poll a video task; also followed live at /api/rpc/events?session=<id>. */
  "GET /v1/video/generations/{id}": {
    auth: "api_key";
    answer: {
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
    };
  };
  /** Submit a video task. */
  "POST /v1/video/generations": {
    auth: "api_key";
    body: {
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
    answer: {
      id: string;
      object: "video.generation";
      model: string;
      status: "queued" | "running" | "done" | "failed" | "cancelled";
      /** Unix seconds */
      created_at: number;
    };
  };
  /** Same as /v1/health. */
  "GET /api/health": {
    auth: "public";
    answer: {
      status: string;
      version: string;
      build_hash: string;
      /** Number of routable models */
      models: number;
      /** Number of listed providers */
      providers: number;
    };
  };
  /** Same as /v1/health. */
  "GET /healthz": {
    auth: "public";
    answer: {
      status: string;
      version: string;
      build_hash: string;
      /** Number of routable models */
      models: number;
      /** Number of listed providers */
      providers: number;
    };
  };
  /** Like /v1/health, but 503 while the process drains before it stops. */
  "GET /readyz": {
    auth: "public";
    answer: {
      status: string;
      version: string;
      build_hash: string;
      /** Number of routable models */
      models: number;
      /** Number of listed providers */
      providers: number;
      /** Usage that waits for the database */
      usage_journal: { rows: number; bytes: number; stalled_seconds: number };
    };
  };
  /** Liveness, version and build. */
  "GET /v1/health": {
    auth: "public";
    answer: {
      status: string;
      version: string;
      build_hash: string;
      /** Number of routable models */
      models: number;
      /** Number of listed providers */
      providers: number;
    };
  };
  /** OpenRPC document of the management plane. */
  "GET /api/openrpc.json": {
    auth: "public";
    answer: Record<string, unknown>;
  };
  /** OpenAPI document of the HTTP surfaces. */
  "GET /api/openapi.json": {
    auth: "public";
    answer: Record<string, unknown>;
  };
  /** Whether accounts can be made, and whether this service has none yet. */
  "GET /api/setup": {
    auth: "public";
    answer: {
      registration_open: boolean;
      /** Nobody has an account; the next one becomes the administrator's */
      first_run: boolean;
    };
  };
}
