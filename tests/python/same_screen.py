"""Two streams of terminal output paint the same screen: pyte, an emulator that ctx has no part in, sees both.

same_screen.py COLS ROWS STREAM REPAINT: exits with 1 and says where they differ.
"""

import sys

import pyte


class Screen(pyte.Screen):
    """With what pyte leaves out and htop uses: lines of the region that scrolls go out at its top (SU) or bottom (SD)."""

    def _scroll(self, count, edge, move):
        at = self.cursor.y
        self.cursor.y = edge(self.margins or (0, self.lines - 1))
        for _ in range(count or 1):
            move()
        self.cursor.y = at

    def scroll_up(self, count=1):
        self._scroll(count, max, self.index)

    def scroll_down(self, count=1):
        self._scroll(count, min, self.reverse_index)


class Stream(pyte.ByteStream):
    csi = {**pyte.ByteStream.csi, "S": "scroll_up", "T": "scroll_down"}
    events = pyte.ByteStream.events | {"scroll_up", "scroll_down"}


def painted(cols, rows, path):
    screen = Screen(cols, rows)
    with open(path, "rb") as file:
        Stream(screen).feed(file.read())
    return screen


def looks(char):
    """What can be seen of a cell: of a blank one its background and its lines."""
    ground = char.fg if char.reverse else char.bg
    if char.data.isspace():
        return (" ", None, ground, char.reverse, char.underscore, char.strikethrough, False, False)
    return (char.data, char.fg, char.bg, char.reverse, char.underscore, char.strikethrough, char.bold, char.italics)


def main():
    cols, rows = int(sys.argv[1]), int(sys.argv[2])
    first, second = (painted(cols, rows, path) for path in sys.argv[3:5])
    different = []
    for row in range(rows):
        for col in range(cols):
            one, other = looks(first.buffer[row][col]), looks(second.buffer[row][col])
            if one != other:
                different.append(f"{row},{col}: {one} became {other}")
    cursors = [(min(s.cursor.x, cols), s.cursor.y, s.cursor.hidden) for s in (first, second)]
    if cursors[0] != cursors[1]:
        different.append(f"the cursor {cursors[0]} became {cursors[1]}")
    inked = sum(not line.isspace() for line in first.display)
    print(f"{inked} lines")
    if different:
        print("\n".join(different[:20]))
        print("\n".join(first.display))
        sys.exit(1)


main()
