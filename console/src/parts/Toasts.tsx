// Short words on what was done, read out by screen readers; gone by themselves. Never for failures:
// those stand where the person is, see ErrorNotice.
import { createContext, use, useCallback, useRef, useState, type ReactNode } from "react";
import { Icon } from "./Icon";
import styles from "./Toasts.module.css";

const SHOWN = 6000;

const ToastContext = createContext<(text: string) => void>(() => undefined);

export const useToast = () => use(ToastContext);

export function Toasts({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<readonly { id: number; text: string }[]>([]);
  const last = useRef(0);
  const toast = useCallback((text: string) => {
    const id = ++last.current;
    setToasts((shown) => [...shown.slice(-2), { id, text }]);
    window.setTimeout(() => setToasts((shown) => shown.filter((each) => each.id !== id)), SHOWN);
  }, []);
  return (
    <ToastContext value={toast}>
      {children}
      <div className={styles.toasts} role="status" aria-live="polite">
        {toasts.map(({ id, text }) => (
          <div key={id} className={styles.toast}>
            <Icon name="check" size={16} />
            {text}
          </div>
        ))}
      </div>
    </ToastContext>
  );
}
