import { AUTHS, CHAT_LIMIT_FIELDS, DIALECTS, type FormField } from "../contract.ts";

const field = (
  name: FormField["name"],
  label: string,
  input: FormField["input"],
  hint: string,
  more: Partial<FormField> = {},
): FormField => ({ name, label, input, required: false, hint, ...more });

export const addressField = (placeholder: string): FormField =>
  field("url", "Address", "text", "The base address; bridge:// addresses work too", {
    required: true,
    placeholder,
  });

export const NAME_FIELD = field("name", "Name", "text", "Requests can choose it by this name");

export const KEY_FIELD = field(
  "api_key",
  "API key",
  "password",
  "Sent to the backend as a bearer; never shown again",
);

/** `listed`: its servers list their models, or most of them do. */
export const modelsField = ({ listed }: { listed: boolean }): FormField =>
  field(
    "models",
    "Models",
    "list",
    "Ids, separated by commas",
    listed ? { placeholder: "discovered where the server lists them" } : {},
  );

/** How a server is called. An empty field means what was found out, or the usual. */
export const SETTING_FIELDS: readonly FormField[] = [
  field("dialects", "Dialects", "list", "Chat APIs that it speaks, the one for chats first", {
    placeholder: DIALECTS.join(", "),
  }),
  field("auth", "Key is sent as", "text", "A bearer, or a header", { choices: AUTHS }),
  field("limit_field", "Output limit", "text", "The field that limits a chat's answer", {
    choices: CHAT_LIMIT_FIELDS,
  }),
  field("id_prefix", "Prefix of model ids", "text", "What its server wants before every id", {
    placeholder: "models/",
  }),
  field("headers", "Headers", "members", "Sent with every request, one on a line; never shown again", {
    placeholder: "x-project: 7",
  }),
  field("set", "Fields to set", "members", "Of every request's body, one on a line, as JSON", {
    placeholder: 'service_tier: "flex"',
  }),
  field("drop", "Fields to drop", "list", "Of every request's body", { placeholder: "seed, user" }),
  field(
    "tool_prices",
    "Prices of its tools",
    "members",
    "Dollars a call, one on a line; others are refused to those who pay",
    { placeholder: "web_search: 0.01" },
  ),
].map((each) => ({ ...each, isMore: true }));
