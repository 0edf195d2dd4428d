import { AUTHS, CHAT_LIMIT_FIELDS, DIALECTS, type FormField } from "../contract.ts";

export const addressField = (placeholder: string): FormField => ({
  name: "url",
  label: "Address",
  input: "text",
  required: true,
  placeholder,
  hint: "The base address; bridge:// addresses work too",
});

export const NAME_FIELD: FormField = {
  name: "name",
  label: "Name",
  input: "text",
  required: false,
  hint: "Requests can choose it by this name",
};

export const KEY_FIELD: FormField = {
  name: "api_key",
  label: "API key",
  input: "password",
  required: false,
  hint: "Sent to the backend as a bearer; never shown again",
};

/** How a server is spoken to: what is left empty is as it was seen, or as usual. */
export const SETTING_FIELDS: readonly FormField[] = [
  {
    ...{ name: "dialects", label: "Dialects", input: "list", placeholder: DIALECTS.join(", ") },
    hint: "Chat APIs that it speaks, the one for chats first",
  },
  { name: "auth", label: "Key is sent as", input: "text", choices: AUTHS, hint: "A bearer, or a header" },
  {
    ...{ name: "limit_field", label: "Output limit", input: "text", choices: CHAT_LIMIT_FIELDS },
    hint: "The field that limits a chat's answer",
  },
  {
    ...{ name: "id_prefix", label: "Prefix of model ids", input: "text", placeholder: "models/" },
    hint: "What its server wants before every id",
  },
  {
    ...{ name: "headers", label: "Headers", input: "members", placeholder: "x-project: 7" },
    hint: "Sent with every request, one on a line; never shown again",
  },
  {
    ...{ name: "set", label: "Fields to set", input: "members", placeholder: 'service_tier: "flex"' },
    hint: "Of every request's body, one on a line, as JSON",
  },
  {
    name: "drop",
    label: "Fields to drop",
    input: "list",
    placeholder: "seed, user",
    hint: "Of every request's body",
  },
  {
    ...{
      name: "tool_prices",
      label: "Prices of its tools",
      input: "members",
      placeholder: "web_search: 0.01",
    },
    hint: "Dollars a call, one on a line; others are refused to those who pay",
  },
].map((field) => ({ ...(field as FormField), required: false, isMore: true }));

/** For a kind whose servers list no models, or may not. */
export const modelsField = ({ listed }: { listed: boolean }): FormField => ({
  name: "models",
  label: "Models",
  input: "list",
  required: false,
  ...(listed && { placeholder: "discovered where the server lists them" }),
  hint: "Ids, separated by commas",
});
