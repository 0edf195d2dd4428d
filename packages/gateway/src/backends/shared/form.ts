import type { FormField } from "../contract.ts";

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

/** For a kind whose servers list no models, or may not. */
export const modelsField = ({ listed }: { listed: boolean }): FormField => ({
  name: "models",
  label: "Models",
  input: "list",
  required: false,
  ...(listed && { placeholder: "discovered where the server lists them" }),
  hint: "Ids, separated by commas",
});
