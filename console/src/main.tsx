import "@fontsource-variable/inter";
import "@fontsource-variable/jetbrains-mono";
import "./style/tokens.css";
import "./style/base.css";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { whenBack } from "./api/connection";
import { asProblem } from "./api/problem";
import { Toasts } from "./parts/Toasts";
import { App } from "./shell/App";

const TRIES = 3;
const LONGEST_PAUSE = 2000;
const ASK_AGAIN = 5000;

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // Live events say what is stale. Without them: after a while, when somebody looks.
      staleTime: 30_000,
      networkMode: "always",
      // A server that is away comes back: asked again for as long as somebody waits.
      retry: (failures, error) => {
        const problem = asProblem(error);
        return problem.unreachable || (problem.passing && failures < TRIES);
      },
      retryDelay: (failures) => Math.min(500 * 2 ** failures, LONGEST_PAUSE),
      // A store that was not there yet, or is away: nothing else would tell that it is back.
      refetchInterval: ({ state }) => (state.status === "error" && asProblem(state.error).passing ? ASK_AGAIN : false),
    },
    mutations: { networkMode: "always", retry: false },
  },
});

// What was asked only once, and met nobody.
whenBack(() =>
  void queries.invalidateQueries({
    predicate: ({ state }) => state.status === "error" && asProblem(state.error).unreachable,
  }),
);

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <Toasts>
        <App />
      </Toasts>
    </QueryClientProvider>
  </StrictMode>,
);
