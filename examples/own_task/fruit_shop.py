"""A task of your own: put the named fruit into the basket, then pay."""

from pathlib import Path

from webgym_workers.tasks import Outcome, Task

FRUITS = ("apple", "cherry", "grape", "lemon", "mango", "peach")


class FruitShop(Task):
    """Two clicks in the right order; the wrong fruit at the till ends the episode without reward."""

    max_steps = 8
    resets_in_page = True
    probe = "({paid: shop.paid, right: shop.basket.length === 1 && shop.basket[0] === shop.wanted})"

    def start_page(self, seed: int) -> str:
        return (Path(__file__).parent / "fruit_shop.html").as_uri()

    def goal(self, seed: int) -> str:
        return f'Put one "{FRUITS[seed % len(FRUITS)]}" into the basket, then pay.'

    def setup(self, seed: int) -> str:
        return f"shop.open({seed}, '{FRUITS[seed % len(FRUITS)]}')"

    def judge(self, probe: dict[str, bool]) -> Outcome:
        if not probe["paid"]:
            return Outcome()
        return Outcome(reward=float(probe["right"]), done=True, success=probe["right"])
