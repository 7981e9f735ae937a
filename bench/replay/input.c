/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines of text out of a file, decompressed on the way if it is an .xz. */
#include <errno.h>
#include <inttypes.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay.h"

enum { CHUNK = 1 << 16, LINE_MAX_BYTES = 256 };

struct input {
    const char *path;
    FILE *file;
    bool compressed;
    bool file_ended; /* nothing more to read */
    bool text_ended; /* nothing more to decompress */
    lzma_stream lzma;
    uint8_t raw[CHUNK];
    char text[CHUNK];
    size_t text_at, text_size;
    char line[LINE_MAX_BYTES];
    uint64_t line_number;
};

static const uint8_t xz_magic[6] = {0xFD, '7', 'z', 'X', 'Z', 0x00};

static bool named_xz(const char *path)
{
    size_t length = strlen(path);

    return length >= 3 && strcmp(path + length - 3, ".xz") == 0;
}

/* Reads the next piece of the file as it is; false on trouble. */
static bool read_raw(struct input *input, size_t *size)
{
    *size = fread(input->raw, 1, sizeof input->raw, input->file);
    if (ferror(input->file)) {
        fprintf(stderr, "hwt-replay: %s: %s\n", input->path, strerror(errno));
        return false;
    }
    input->file_ended = *size < sizeof input->raw;
    return true;
}

static bool start_decoder(struct input *input, size_t size)
{
    lzma_ret got = lzma_stream_decoder(&input->lzma, UINT64_MAX, LZMA_CONCATENATED);

    if (got != LZMA_OK) {
        fprintf(stderr, "hwt-replay: %s: cannot start the .xz decoder (error %d)\n", input->path,
                (int)got);
        return false;
    }
    input->lzma.next_in = input->raw;
    input->lzma.avail_in = size;
    return true;
}

/* The first piece tells whether the file is compressed, whatever its name says. */
static bool recognise(struct input *input)
{
    size_t size;

    if (!read_raw(input, &size))
        return false;
    if (size == 0) {
        fprintf(stderr, "hwt-replay: %s: the file is empty\n", input->path);
        return false;
    }
    input->compressed =
        size >= sizeof xz_magic && memcmp(input->raw, xz_magic, sizeof xz_magic) == 0;
    if (input->compressed)
        return start_decoder(input, size);
    if (named_xz(input->path)) {
        fprintf(stderr, "hwt-replay: %s: not an .xz file, for all its name says\n", input->path);
        return false;
    }
    memcpy(input->text, input->raw, size);
    input->text_size = size;
    return true;
}

struct input *input_open(const char *path)
{
    struct input *input = calloc(1, sizeof *input);

    if (!input) {
        fprintf(stderr, "hwt-replay: out of memory\n");
        return NULL;
    }
    input->path = path;
    input->lzma = (lzma_stream)LZMA_STREAM_INIT;
    input->file = fopen(path, "rb");
    if (!input->file) {
        fprintf(stderr, "hwt-replay: cannot open %s: %s\n", path, strerror(errno));
        free(input);
        return NULL;
    }
    if (!recognise(input)) {
        input_close(input);
        return NULL;
    }
    return input;
}

void input_close(struct input *input)
{
    lzma_end(&input->lzma);
    fclose(input->file);
    free(input);
}

uint64_t input_line_number(const struct input *input)
{
    return input->line_number;
}

static void tell_decoder_trouble(const struct input *input, lzma_ret got)
{
    const char *what = got == LZMA_BUF_ERROR    ? "truncated: the compressed data stops"
                       : got == LZMA_DATA_ERROR ? "damaged .xz data"
                       : got == LZMA_MEM_ERROR  ? "out of memory while decompressing"
                                                : "cannot be decompressed";

    fprintf(stderr, "hwt-replay: %s: %s at byte %" PRIu64 ", after line %" PRIu64 "\n", input->path,
            what, (uint64_t)input->lzma.total_in, input->line_number);
}

/* Decompresses until there is text or an end; false on trouble. */
static bool decompress(struct input *input)
{
    lzma_stream *lzma = &input->lzma;

    lzma->next_out = (uint8_t *)input->text;
    lzma->avail_out = sizeof input->text;
    while (lzma->avail_out == sizeof input->text && !input->text_ended) {
        if (lzma->avail_in == 0 && !input->file_ended) {
            size_t size;

            if (!read_raw(input, &size))
                return false;
            lzma->next_in = input->raw;
            lzma->avail_in = size;
        }
        lzma_ret got = lzma_code(lzma, input->file_ended ? LZMA_FINISH : LZMA_RUN);

        input->text_ended = got == LZMA_STREAM_END;
        if (got != LZMA_OK && got != LZMA_STREAM_END) {
            tell_decoder_trouble(input, got);
            return false;
        }
    }
    input->text_size = sizeof input->text - lzma->avail_out;
    return true;
}

static bool read_plain(struct input *input)
{
    if (!input->file_ended) {
        if (!read_raw(input, &input->text_size))
            return false;
        memcpy(input->text, input->raw, input->text_size);
    }
    input->text_ended = input->file_ended;
    return true;
}

/* More text, or none at the end; false on trouble. */
static bool refill(struct input *input)
{
    input->text_at = input->text_size = 0;
    if (input->text_ended)
        return true;
    return input->compressed ? decompress(input) : read_plain(input);
}

const char *input_line(struct input *input, bool *failed)
{
    size_t length = 0;

    for (;;) {
        if (input->text_at == input->text_size && !refill(input))
            break;
        if (input->text_size == 0) {
            if (length == 0)
                return NULL;
            fprintf(stderr, "hwt-replay: %s:%" PRIu64 ": the file ends in the middle of a line\n",
                    input->path, input->line_number + 1);
            break;
        }
        char c = input->text[input->text_at++];

        if (c == '\n') {
            input->line[length] = '\0';
            input->line_number++;
            return input->line;
        }
        if (length == sizeof input->line - 1) {
            fprintf(stderr, "hwt-replay: %s:%" PRIu64 ": the line is too long\n", input->path,
                    input->line_number + 1);
            break;
        }
        input->line[length++] = c;
    }
    *failed = true;
    return NULL;
}
