"""Uses a browser with the keyboard alone."""

from collections.abc import Sequence
from typing import Any, Final

from selenium.webdriver import ActionChains, Keys

from packages.console.tests.support.browser import Browser
from tests.support.harness import wait_until

MOST: Final = 400  # focusable elements on a page
KEYS: Final = {"Tab": (9, ""), "Enter": (13, "\r"), "Space": (32, " "), "ArrowDown": (40, "")}
_WATCH: Final = """
rest();  // an update may replace what the focus has been on
window.walked = [];
document.addEventListener("focusin", ({ target }) => {
  window.round = window.round || walked.some(([element]) => element === target);
  if (window.round) return;
  const box = target.getBoundingClientRect();
  const label = target.labels && target.labels[0];
  const outlined = [target, label].some((shown) => {
    const style = shown && getComputedStyle(shown);
    return style && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0
      && style.opacity > 0;
  });
  const inside = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
  walked.push([target, outlined, inside]);
}, true);
for (const part of document.querySelectorAll("details")) part.open = true;
"""
_SHOWN: Final = """
const shown = [...document.querySelectorAll(
  "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']"
)].filter((element) => element.checkVisibility({visibilityProperty: true}) && !element.disabled);
"""
_AHEAD: Final = f"""{_SHOWN}
const at = shown.indexOf(document.activeElement);
return shown.findIndex((one, n) => n > at && one.matches(arguments[0])) - at;
"""
_JUDGE: Final = (
    _SHOWN
    + """
const name = (element) => element.outerHTML.slice(0, 120);
const order = walked.map(([element]) => element);
const found = [];
const but = (some, others, why) =>
  some.filter((one) => !others.includes(one)).forEach((one) => found.push(why + name(one)));
but(shown, order, "not reached: ");
but(order, shown, "unexpected: ");
for (const [element, outlined, inside] of walked) {
  if (!outlined) found.push("the focus is not seen: " + name(element));
  if (!inside) found.push("out of sight: " + name(element));
}
order.slice(1).forEach((element, number) => {
  if (!(order[number].compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING))
    found.push("out of order: " + name(element));
});
return found;
"""
)


class Keyboard:
    """The keyboard of a browser."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def press(self, key: str) -> None:
        """Press one of ``KEYS``."""
        code, text = KEYS[key]
        event: dict[str, Any] = {"key": text or key, "code": key, "windowsVirtualKeyCode": code}
        if key == "Enter":
            event["key"] = key
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            more = {"text": text} if kind == "keyDown" else {}
            self._send("Input.dispatchKeyEvent", {"type": kind, **event, **more})

    def type(self, text: str) -> None:
        """Type text at the focus."""
        self._send("Input.insertText", {"text": text})

    def to(self, selector: str) -> None:
        """Move the focus to the next element that matches a selector."""
        # Many keys in one request, and single ones only where an update has changed the page.
        ahead = int(self._browser.run(_AHEAD, selector))
        if ahead > 0:
            ActionChains(self._browser.driver).send_keys(Keys.TAB * ahead).perform()
            if self.is_at(selector):
                return
        for _ in range(MOST):
            self.press("Tab")
            if self.is_at(selector):
                return
        raise AssertionError(f"the keyboard does not lead to {selector}")

    def is_at(self, selector: str) -> bool:
        """Whether the focus is on an element that matches this selector."""
        script = "return document.activeElement.matches(arguments[0])"
        return bool(self._browser.run(script, selector))

    def do(self, steps: Sequence[str]) -> None:
        """Take steps once the page is loaded: a key; ``"`` with text to type; or a selector to go
        to. ``yes`` confirms a question."""
        wait_until(lambda: self._browser.run("return document.readyState === 'complete'"))
        for step in steps:
            if step in KEYS:
                self.press(step)
            elif step.startswith('"'):
                self.type(step[1:])
            elif step == "yes":
                # Not at the button, if there is no way back.
                wait_until(lambda: self.is_at(".confirm button:not(.danger), .confirm a"))
                self.to(".confirm button")
                self.press("Enter")
            else:
                self.to(step)

    def walk(self) -> list[str]:
        """Tab through the whole open page once; returns the problems."""
        self._browser.run(_WATCH)
        for _ in range(MOST // 20):
            # Many keys in one request: each one costs more than the browser's work on a key.
            ActionChains(self._browser.driver).send_keys(Keys.TAB * 20).perform()
            if self._browser.run("return window.round"):
                break
        found: list[str] = self._browser.run(_JUDGE)
        return found

    def _send(self, command: str, arguments: dict[str, Any]) -> None:
        self._browser.driver.execute_cdp_cmd(command, arguments)
