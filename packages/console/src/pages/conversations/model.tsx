import { useCallableModels, withChosen } from "../../lib/models.ts";
import { useSearch } from "../../lib/router.ts";
import { asChoices, Combobox } from "../../ui/combobox.tsx";

const KEY = "model-gateway.chat-model";

export interface ChatModel {
  model: string;
  choices: readonly string[];
  /** No model can be called. */
  isNone: boolean;
  choose(model: string): void;
}

/** The model that answers: the address's, then the one that was chosen last, then the first that there is. */
export function useChatModel(): ChatModel {
  const [search, setSearch] = useSearch();
  const models = useCallableModels("chat");
  const last = localStorage.getItem(KEY);
  const usual = last && models.data?.includes(last) ? last : models.data?.[0];
  const model = search.get("model") ?? usual ?? "";
  return {
    model,
    choices: withChosen(models.data ?? [], model),
    isNone: models.data?.length === 0,
    choose: (id) => {
      localStorage.setItem(KEY, id);
      setSearch({ model: id });
    },
  };
}

export function ModelChoice({ model, choices, choose }: ChatModel) {
  return <Combobox label="Model" value={model} onChange={choose} choices={asChoices(choices)} />;
}
