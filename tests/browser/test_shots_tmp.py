from pathlib import Path
def test_shot(lesson, screenshots):
    lesson.open(Path(__file__).parent / "data" / "views.ipynb").run_all()
    lesson.page.set_viewport_size({"width": 1280, "height": 2400})
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        lesson.use_theme(theme)
        for i, v in enumerate(lesson.views()):
            v.screenshot(path=screenshots / f"{theme[-5:].strip()}_{i}.png")
            print(v.evaluate("e => [e.scrollWidth, e.clientWidth, e.clientHeight]"))
    lesson.page.screenshot(path=screenshots/"page.png")
    print(lesson.errors, lesson.external)
