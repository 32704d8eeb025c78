// From "who is there" to the screen of the address.
import { Suspense, useRef } from "react";
import { Redirect, Route, Switch, useLocation } from "wouter";
import type { Me } from "../api/documents";
import { asProblem } from "../api/problem";
import { MeProvider, useSession } from "../api/session";
import { useLive } from "../live/useLive";
import { Button } from "../parts/Button";
import { EmptyState } from "../parts/EmptyState";
import { ErrorNotice } from "../parts/ErrorNotice";
import { Page, Waiting } from "../parts/Page";
import { screens } from "../screens/screens";
import { Boundary } from "./Boundary";
import { LoginDialog, LoginPage } from "./Login";
import { Shell } from "./Shell";

export function App() {
  const session = useSession();
  const lastMe = useRef<Me | null>(null);
  const me = session.data;
  if (me && me.login !== "needed") lastMe.current = me;
  if (lastMe.current !== null) {
    return (
      <MeProvider value={lastMe.current}>
        <Inside />
        {me?.login === "needed" && <LoginDialog />}
      </MeProvider>
    );
  }
  if (me) return <LoginPage />;
  const failure = session.failureReason ? asProblem(session.failureReason) : null;
  return (
    <Page title="Redrive">
      {failure !== null && !failure.unreachable && (
        <ErrorNotice error={failure} retry={() => void session.refetch()} />
      )}
      {!session.error && <Waiting />}
    </Page>
  );
}

function Inside() {
  useLive();
  const [place] = useLocation();
  return (
    <Shell>
      <Boundary place={place}>
        <Suspense fallback={<Page title="&nbsp;" children={<Waiting />} />}>
          <Switch>
            {screens.map(({ path, component }) => (
              <Route key={path} path={path} component={component} />
            ))}
            {screens[0]?.path !== "/" && (
              <Route path="/">
                <Redirect to={screens[0]!.path} replace />
              </Route>
            )}
            <Route component={NoSuchPage} />
          </Switch>
        </Suspense>
      </Boundary>
    </Shell>
  );
}

function NoSuchPage() {
  return (
    <Page title="No such page">
      <EmptyState icon="search" title="There is nothing at this address">
        <Button onClick={() => window.history.back()}>Go back</Button>
      </EmptyState>
    </Page>
  );
}
