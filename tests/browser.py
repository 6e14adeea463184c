"""A real browser, Debian's Chromium, driven by selenium: without network of its own."""

import base64
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromedriver")
SCRIPT_SECONDS = 200  # axe looks at thousands of cells, and the machine may be busy
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Browser:
    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str, width: int, theme: str = "light", media: str = "") -> None:
        """Open a page; `media` is "print" for how it would be printed."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features, "media": media})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get(address)

    def ask(self, script: str) -> Any:
        return self.driver.execute_script(f"return {script}")

    def press(self, key: str) -> None:
        """Press a key, as somebody without a mouse does."""
        number, text = {"Enter": (13, "\r"), "ArrowRight": (39, "")}[key]
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": number}
            self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", event)

    def wait_for(self, condition: str) -> None:
        for _ in range(100):
            if self.ask(condition):
                return
            time.sleep(0.1)
        raise AssertionError(condition)

    def messages(self) -> list[Any]:
        """What the browser has complained about since it was last asked."""
        return list(self.driver.get_log("browser"))

    def violations(self) -> list[str]:
        """What axe-core finds wrong for those who can't see, hear or use a mouse."""
        self.driver.execute_script((files("axe_playwright_python") / "axe.min.js").read_text())
        found = self.driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
        return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found["violations"]]

    def screenshot(self, path: Path) -> None:
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        printed = self.driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
        return base64.b64decode(printed["data"])


@contextmanager
def running(folder: Path) -> Iterator[Browser]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Crash reports of Chromium are in the home folder, wherever its data are.
    service = Service("/usr/bin/chromedriver", env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)})
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(SCRIPT_SECONDS)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
