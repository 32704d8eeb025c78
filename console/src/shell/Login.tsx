// The login. As a page when nobody is logged in yet; as a dialog over the screen when a session has
// ended meanwhile, so that what is typed there stays.
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { post, setCsrfToken } from "../api/client";
import type { Me } from "../api/documents";
import { sessionKey } from "../api/session";
import { useChange } from "../api/useChange";
import { readAllAgain } from "../live/readAgain";
import { Button } from "../parts/Button";
import { ErrorNotice } from "../parts/ErrorNotice";
import { Field, inputClass } from "../parts/Field";
import styles from "./Login.module.css";

export function LoginPage() {
  useEffect(() => {
    document.title = "Log in · Redrive";
  }, []);
  return (
    <main className={styles.page}>
      <LoginForm why="Log in to see and replay dead letters." />
    </main>
  );
}

export function LoginDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      className={styles.dialog}
      aria-label="Log in again"
      onCancel={(event) => event.preventDefault()}
    >
      <LoginForm why="Your session has ended. Log in again; what you were doing stays as it is." />
    </dialog>
  );
}

function LoginForm({ why }: { why: string }) {
  const queries = useQueryClient();
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const login = useChange<{ name: string; password: string }, Me>({
    change: (given, key) => post("/api/v1/session", given, {}, { key }),
    touches: [],
    then: (me) => {
      setCsrfToken(me.csrfToken);
      queries.setQueryData(sessionKey, me);
      readAllAgain(queries, sessionKey);
    },
  });
  return (
    <form
      className={styles.form}
      onSubmit={(event) => {
        event.preventDefault();
        if (!login.busy) login.make({ name, password });
      }}
    >
      <div className={styles.brand}>
        <img src="/icon.svg" alt="" width="40" height="40" />
        <h1>Redrive</h1>
        <p>{why}</p>
      </div>
      <Field label="Name">
        {(ids) => (
          <input
            {...ids}
            className={inputClass}
            autoComplete="username"
            autoCapitalize="none"
            autoFocus
            required
            value={name}
            onChange={(event) => setName(event.target.value)}
          />
        )}
      </Field>
      <Field label="Password">
        {(ids) => (
          <input
            {...ids}
            className={inputClass}
            type="password"
            autoComplete="current-password"
            required
            value={password}
            onChange={(event) => setPassword(event.target.value)}
          />
        )}
      </Field>
      {login.problem && <ErrorNotice error={login.problem} />}
      <Button kind="main" type="submit" busy={login.busy}>
        Log in
      </Button>
    </form>
  );
}
